// Package refusal is how the parts of access say no: a status, a sentence and
// what to do, in the shape that the REST interface's other errors have.
//
// It guarantees that a sentence has no control bytes and a bounded length,
// whatever a client has sent that is in it.
//
// It must not decide anything, nor log.
package refusal
