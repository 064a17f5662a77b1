// Package token reads the shared tokens of a file, one a line: clients send the first, and
// servers accept each. It guarantees that a changed file counts within a second, that the
// last readable contents stay if it cannot be read, and that the time of a comparison
// reveals nothing. It must not log a token, return one in an error, or know where one is
// shown. It is called by netmaster, netplugin and netctl. Start with File.
package token
