// Package supportbundle packs what a daemon knows of itself for troubleshooting: parts of
// bounded size, and a manifest of them. It guarantees that no part contains a private key,
// a secret file's text, or what follows a word such as token. A part that fails does not
// exclude others, and packing uses bounded memory. It must not know what the parts are,
// open connections, or write to the disk. It is called by netmaster and netplugin, and by
// `netctl bugtool`. Start with Support.
package supportbundle
