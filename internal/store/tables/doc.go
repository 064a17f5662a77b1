// Package tables is the key layout: typed rows over the keys of a store, one file for each
// kind, and a registry that decodes a mirror's events. It guarantees that every write of a
// row touches the scope that lists it, that a record of a newer version is never rewritten
// with fields lost, and that any name is one segment of a key. It must not validate, check
// references or allocate: control and ipam do. It is called by control, by netplugin's
// state mirror, and wherever rows are read or written. Start with Table.
package tables
