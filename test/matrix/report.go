package matrix

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"
)

// report is what came of the rows, of one code each.
type report struct {
	Rows []result `json:"rows"` // in the order of Rows
}

// result is what came of a row.
type result struct {
	ID      string    `json:"id"`
	Row     string    `json:"row"`
	Code    string    `json:"code"` // bench/stats.Code of what ran
	Commit  string    `json:"commit"`
	Date    time.Time `json:"date"`
	Seconds int       `json:"seconds"`
	Missing string    `json:"missing,omitempty"` // what is missing, of a row that does not work yet
}

func readReport(file string) (r report, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// has reports whether a row passed with a code.
func (r report) has(id, code string) bool {
	return code != "" && slices.ContainsFunc(r.Rows, func(s result) bool { return s.ID == id && s.Code == code })
}

// put enters a result and drops those of rows that are no more.
func (r *report) put(s result, rows []Row) {
	r.Rows = slices.DeleteFunc(r.Rows, func(old result) bool {
		return old.ID == s.ID || !slices.ContainsFunc(rows, func(r Row) bool { return r.ID() == old.ID })
	})
	r.Rows = append(r.Rows, s)
	at := func(s result) int { return slices.IndexFunc(rows, func(r Row) bool { return r.ID() == s.ID }) }
	slices.SortFunc(r.Rows, func(a, b result) int { return at(a) - at(b) })
}

func (r report) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
