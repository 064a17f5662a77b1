// Package refusal is an error for a client: a status, a sentence and a remedy, in the JSON
// of the REST interface's other errors. It guarantees that a sentence has no control bytes
// and a bounded length, whatever a client has sent. It must not decide or log anything. It
// is called by netmaster, its API server, packages of access, and connlimit. Start with
// Refusal.
package refusal
