// Package ratio compares two series of measurements that were taken in turn. It guarantees
// the same interval for the same values. It must not be imported except by benchmarks. It
// is called by the programs in bench. Start with Compare.
package ratio
