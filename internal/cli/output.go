package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// printJSON writes v indented, as the wire shapes say.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printTable writes columns two spaces apart under an underlined header, as
// 1.x did; lines end without blanks.
func printTable(w io.Writer, header []string, rows [][]string) error {
	underline := make([]string, len(header))
	width := make([]int, len(header))
	for i, h := range header {
		underline[i] = strings.Repeat("-", utf8.RuneCountInString(h))
	}
	all := append([][]string{header, underline}, rows...)
	for _, row := range all {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printRow writes one more row of a table whose widths are not known any more.
func printRow(w io.Writer, row []string) error {
	_, err := fmt.Fprintln(w, strings.TrimRight(strings.Join(row, "  "), " "))
	return err
}

func printLines(w io.Writer, lines []string) error {
	for _, l := range lines {
		if _, err := fmt.Fprintln(w, l); err != nil {
			return err
		}
	}
	return nil
}
