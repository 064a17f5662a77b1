// Package ratio compares two series of measurements that were taken in turn.
//
// It guarantees the same interval for the same values.
//
// It must not be imported but by benchmark programs.
package ratio
