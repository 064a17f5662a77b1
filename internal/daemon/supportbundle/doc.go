// Package supportbundle packs what a daemon tells of itself for the search of faults: parts of
// bounded size, and a manifest that says of each what it has, or why it could not be had.
//
// Guarantees: no part, and no line that Ring gives out, has a secret of SecretFiles, a
// private key, or what follows a word such as token or password; a part that fails or is
// too long does not keep others out; Pack uses bounded memory.
//
// Must not: know what the parts are, open connections, or write to the disk.
package supportbundle
