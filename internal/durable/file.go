package durable

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// WriteFile makes a file of data, or replaces it.
func WriteFile(path string, data []byte) error {
	return Write(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// WriteJSON makes a file of a value, or replaces it.
func WriteJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return WriteFile(path, append(data, '\n'))
}

// Write makes a file of what fill writes, or replaces it; when fill fails, with
// its error, nothing has changed. Only the owner can read the file. Any number of
// processes may write one file at once.
func Write(path string, fill func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), unfinished(path))
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncDir(filepath.Dir(path))
}

// Replace is WriteFile for what only has to outlive the process: nothing is
// synced, so that a crash of the machine may lose it.
func Replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), unfinished(path))
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// unfinished is what the names of a file look like while it is being written.
func unfinished(path string) string { return "." + filepath.Base(path) + ".new-*" }

// Unfinished returns what processes that were killed have left of writing a
// file.
func Unfinished(path string) ([]string, error) {
	return filepath.Glob(filepath.Join(filepath.Dir(path), unfinished(path)))
}

// SyncDir has a directory's files keep the names that they have now.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
