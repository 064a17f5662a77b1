package netctl

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// columnsOf is how many columns a terminal has; 0 = it is none.
func columnsOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// minColumns is what text needs to be read at all: narrower terminals break lines themselves.
const minColumns = 40

// wrap breaks a text after words, so that its lines fit columns; all but the first begin
// with indent. Without a terminal it stays one line.
func wrap(text, indent string, columns int) string {
	if columns < minColumns {
		return text
	}
	var b strings.Builder
	words := strings.TrimLeft(text, " ")
	b.WriteString(text[:len(text)-len(words)])
	at, first := b.Len(), true
	for word := range strings.SplitSeq(words, " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case first:
			first = false
		case at+1+n > columns:
			b.WriteString("\n" + indent)
			at = len(indent)
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}
