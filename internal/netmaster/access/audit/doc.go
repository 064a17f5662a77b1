// Package audit keeps a line for each change of the cluster, and for each request
// for one that was refused: who, from where, what, from which revision to which.
//
// It guarantees that a line is JSON whatever a client has sent, that the file is
// readable by its owner only, that it and its former ones together stay below a
// bound, that a line which could not be written is counted, told of in the log and
// by the next line that is, and that no request waits or fails for that.
//
// It must not be given a secret: an Entry has no field for a body, a header or a
// query. A line is not synced to disk, and a process that is killed between a
// commit and its line leaves none.
package audit
