package transport

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const first, second = "0123456789abcdef", "fedcba9876543210"

// TestEachTokenOfAFileIsAccepted: each line is accepted, the first is shown, and nothing else is.
func TestEachTokenOfAFileIsAccepted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "\n"+first+"\r\n\n"+second)
	f, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	if f.Show() != first {
		t.Errorf("shows %q", f.Show())
	}
	for shown, want := range map[string]bool{first: true, second: true, "": false, first[1:]: false, first + "0": false, first + "\n" + second: false, " " + first: false} {
		if f.Accepts(shown) != want {
			t.Errorf("accepts %q: %v, want %v", shown, !want, want)
		}
	}
}

// TestChangedTokenFileCountsAtOnce: a file that changes counts within a second; one that is gone or
// wrong leaves what there was, and says so.
func TestChangedTokenFileCountsAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, first)
	f, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	f.now = func() time.Time { return now }
	write(t, path, second)
	now = now.Add(cacheTime - time.Millisecond)
	f.checkedAt = now.Add(time.Millisecond - cacheTime)
	if f.Show() != first {
		t.Error("the file was read again at once")
	}
	now = now.Add(cacheTime)
	if f.Show() != second {
		t.Error("the file is not read again")
	}
	write(t, path, first)
	if now = now.Add(cacheTime - 1); f.Show() != second {
		t.Error("the file was read again at once, the second time")
	}
	write(t, path, second)
	if f.Show() != second || f.Accepts(first) || !f.Accepts(second) || f.Err() != nil {
		t.Errorf("a second later it shows %q, error %v", f.Show(), f.Err())
	}
	for _, spoil := range []func(){func() { write(t, path, "short") }, func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}} {
		spoil()
		now = now.Add(cacheTime)
		if f.Show() != second || !f.Accepts(second) || f.Err() == nil || !strings.Contains(f.Err().Error(), path) {
			t.Errorf("a file that cannot be used: it shows %q, error %v", f.Show(), f.Err())
		}
	}
	if err := f.Err(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
	for _, text := range []string{second, first} { // as it was, and another
		write(t, path, "short")
		now = now.Add(cacheTime)
		if f.Err() == nil {
			t.Error("a file that cannot be used is no trouble")
		}
		write(t, path, text)
		now = now.Add(cacheTime)
		if f.Err() != nil || f.Show() != text {
			t.Errorf("the file is back: it shows %q, error %v", f.Show(), f.Err())
		}
	}
}

func TestBadTokenFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"":                         "it is empty",
		"\n\n":                     "it is empty",
		"short":                    "line 1 must be one token",
		first + "\n" + first[1:]:   "line 2 must be one token",
		first + " " + second:       "line 1 must be one token",
		"\xff" + first:             "line 1 must be one token",
		"\n" + first + "é" + first: "line 2 must be one token",
	} {
		path := filepath.Join(dir, "token")
		write(t, path, text)
		_, err := OpenTokens(path)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), first) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := OpenTokens(filepath.Join(dir, "none")); err == nil {
		t.Error("a file that is not there was opened")
	}
	if f, err := OpenTokens(""); f != nil || err != nil || f.Source() != nil || f.Err() != nil {
		t.Errorf("no file: %v, %v", f, err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
