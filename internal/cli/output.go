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
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, visibleJSON(b.String()))
	return err
}

// printTable writes columns two spaces apart under an underlined header, as
// 1.x did; lines end without blanks.
func printTable(w io.Writer, header []string, rows [][]string) error {
	underline := make([]string, len(header))
	width := make([]int, len(header))
	for i, h := range header {
		underline[i] = strings.Repeat("-", utf8.RuneCountInString(h))
	}
	all := [][]string{header, underline}
	for _, row := range rows {
		all = append(all, visibleRow(row))
	}
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
	_, err := fmt.Fprintln(w, strings.TrimRight(strings.Join(visibleRow(row), "  "), " "))
	return err
}

// visibleRow is a table's row with visible cells.
func visibleRow(row []string) []string {
	out := make([]string, len(row))
	for i, cell := range row {
		out[i] = visible(cell)
	}
	return out
}

func printLines(w io.Writer, lines []string) error {
	for _, l := range lines {
		if _, err := fmt.Fprintln(w, l); err != nil {
			return err
		}
	}
	return nil
}
