// Package tables is the one key layout: typed rows over the keys of a store, a
// file for each kind of row and a registry of all of them, by which a mirror's
// events are decoded.
//
// It guarantees that every write of a row touches the scope that lists it, that
// a record of a newer version of this program is never rewritten with fields
// lost, and that a name is one segment of a key whatever it contains.
//
// It must not know what rows mean: validation, references and allocation belong
// to control and ipam.
package tables
