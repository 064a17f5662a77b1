// Package connlimit keeps a listener's clients from using up what all need: the size of
// bodies, how often one may ask, and how many requests are answered at a time.
//
// It guarantees that a refusal is a sentence with its status (413, 429, 503) and
// when to come back, that memory is bounded whatever addresses ask, and that
// nobody gets more by being forgotten: a client is only forgotten when it could not
// be told from a new one, and who finds no place shares one with all others so.
//
// It must not know who a client is beyond its address, nor what it asks.
package connlimit
