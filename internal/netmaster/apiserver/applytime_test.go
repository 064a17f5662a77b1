package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestListHasAsMuchTimeAsItsCheckTook: however long the check of a list takes, what is applied
// of it in one request is not a few objects, and the request ends before clients give up.
func TestListHasAsMuchTimeAsItsCheckTook(t *testing.T) {
	const timeout = 8 * time.Second
	for _, c := range []struct{ check, want time.Duration }{
		{0, 4 * time.Second},
		{3 * time.Second, 4 * time.Second},
		{6 * time.Second, 6 * time.Second},
		{14 * time.Second, 4 * time.Second},
		{20 * time.Second, 4 * time.Second},
	} {
		begin := time.Unix(1000, 0)
		now := begin.Add(c.check)
		a := applyTime{begin: begin, timeout: timeout, now: func() time.Time { return now }}
		for a.hasTime() {
			now = now.Add(time.Second)
		}
		if took := now.Sub(a.committed); took != c.want {
			t.Errorf("checked for %v, commits for %v, want %v", c.check, took, c.want)
		}
	}
}

// TestListThatCannotBeCheckedInTimeIsRefused: the refusal says that nothing is applied, and
// that is so.
func TestListThatCannotBeCheckedInTimeIsRefused(t *testing.T) {
	f := serveWith(t, func(c *Config) { c.Timeout = time.Nanosecond })
	if _, err := f.ctrl.View(t.Context()); err != nil { // the store is read, which no request can wait for
		t.Fatal(err)
	}
	var list []string
	for i := range 100 {
		list = append(list, fmt.Sprintf(`{"kind":"tenant","tenantName":"t%d"}`, i))
	}
	status, text := f.do("POST", "/api/v1/apply", `{"objects":[`+strings.Join(list, ",")+`]}`)
	if status != http.StatusServiceUnavailable || !strings.Contains(text, "nothing is applied: checking 100 objects takes more than") {
		t.Errorf("%d %s", status, text)
	}
	for key := range f.contents() {
		if strings.Contains(key, "/tenant/t") {
			t.Errorf("%s is there", key)
		}
	}
}
