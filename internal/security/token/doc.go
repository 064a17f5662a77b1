// Package token reads the secret by which netmaster knows who may ask it: a file
// with a token a line, of which the first is shown and each is accepted.
//
// It guarantees that a file that changes counts within a second, without a
// restart, that one which cannot be read any more leaves what was read before, and
// that how long a comparison takes tells nothing of a token.
//
// It must not log or return a token in an error, nor know where one is shown.
package token
