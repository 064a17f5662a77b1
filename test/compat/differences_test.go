package compat

// differences lists, by number of the exchange, where this server answers
// otherwise than 1.x did, and why.
var differences = map[int]string{}
