package durable

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// holds checks a file's contents, that only its owner can read it, and that its
// directory has nothing else.
func holds(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s holds %q, %v; want %q", path, got, err, want)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v", path, st.Mode(), err)
	}
	if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
		t.Errorf("beside %s: %v, %v", path, all, err)
	}
}

// TestWriteReplacesTheFileOrChangesNothing: a file is made and replaced; what fails changes nothing and leaves
// nothing.
func TestWriteReplacesTheFileOrChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.json")
	for _, text := range []string{"a longer text", "short"} {
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		holds(t, path, text)
	}
	if err := WriteJSON(path, map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "{\"a\":1}\n")
	if err := Replace(path, []byte("another")); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "another")
	if err := Replace(filepath.Join(path, "none"), nil); err == nil {
		t.Error("a file was replaced where no directory is")
	}
	if err := WriteJSON(path, map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := Write(path, func(w io.Writer) error {
		_, err := io.WriteString(w, "half of")
		return errors.Join(err, broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("fill's error is %v", err)
	}
	if err := WriteJSON(path, func() {}); err == nil {
		t.Error("a function was written as JSON")
	}
	holds(t, path, "{\"a\":1}\n")

	taken := filepath.Join(t.TempDir(), "taken")
	if err := os.MkdirAll(filepath.Join(taken, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if WriteFile(taken, nil) == nil || Replace(taken, nil) == nil {
		t.Error("a directory was replaced")
	}
	if left, err := Unfinished(taken); err != nil || len(left) != 0 {
		t.Errorf("a failure left %v, %v", left, err)
	}
	if err := WriteFile(filepath.Join(path, "none"), nil); err == nil {
		t.Error("a file was written where no directory is")
	}
	if err := SyncDir(filepath.Join(path, "none")); err == nil {
		t.Error("a missing directory was synced")
	}
}

// TestConcurrentWritersLeaveOneWholeFile: of many who write a file, one has written it.
func TestConcurrentWritersLeaveOneWholeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				if err := WriteFile(path, []byte("the same")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	holds(t, path, "the same")
}

// TestUnfinishedWritesAreFound: what a kill left is found by the name of the file that it was
// to become.
func TestUnfinishedWritesAreFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	want := errors.New("killed")
	err := Write(path, func(io.Writer) error {
		left, err := Unfinished(path)
		if other, _ := Unfinished(path + "2"); err == nil && (len(left) != 1 || len(other) != 0) {
			t.Errorf("unfinished: %v, of another file %v", left, other)
		}
		return errors.Join(err, want)
	})
	if !errors.Is(err, want) {
		t.Error(err)
	}
}
