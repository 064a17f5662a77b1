// Package audit writes a line for each change of the cluster, and for each refused request
// for one: who, from where, what, and the revisions before and after. It guarantees JSON
// lines, a file that only its owner can read and that is bounded with its older files, and
// that no request waits or fails for a line. Lines that could not be written are counted
// and logged. It must not get a secret: an Entry has no field for a body, header or query.
// It is called by netmaster and its API server. Start with Log.
package audit
