// Package api holds the JSON shapes of netmaster's REST interface, as clients
// of Contiv 1.x know them, and a client for it.
//
// It guarantees that a value encodes to the field names, the field order and
// the omissions of the recorded 1.x exchanges, and that the client returns
// *Error for every answer that is not a success and *UnreachableError when no
// netmaster answered.
//
// It uses the standard library only, so that other programs can import it, and
// it must not validate: that belongs to the server.
package api
