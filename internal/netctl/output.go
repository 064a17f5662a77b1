package netctl

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/contiv/netplugin/v2/api"
)

// readable leaves out of all endpoints in a value, which it changes, the labels as 1.x wrote
// them: other fields have them.
func readable(v any) any {
	plain := reflect.ValueOf(&v).Elem()
	readableIn(plain)
	return plain.Interface()
}

func readableIn(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // in all others there are no endpoints
	case reflect.Interface:
		if !v.IsNil() {
			c := reflect.New(v.Elem().Type()).Elem() // which can be changed
			c.Set(v.Elem())
			readableIn(c)
			v.Set(c)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			readableIn(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			readableIn(v.Index(i))
		}
	case reflect.Struct:
		if e, ok := reflect.TypeAssert[*api.EndpointOper](v.Addr()); ok {
			if e.LabelMap != nil || e.Labels == "map[]" {
				e.Labels = ""
			}
			return
		}
		for f, member := range v.Fields() {
			if f.IsExported() {
				readableIn(member)
			}
		}
	}
}

// printJSON writes v indented, as the wire shapes say.
func printJSON(w io.Writer, v any) error {
	var b strings.Builder
	v = readable(v)
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
