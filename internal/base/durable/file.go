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

// Write makes or replaces a file with what fill writes. If fill fails, Write returns
// its error and the file is unchanged. Only the owner can read the file. Any number
// of processes may write one file at once.
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

// Replace is WriteFile without syncing: the file survives the process, but a crash
// of the machine may lose it.
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

// unfinished is the pattern of a file's temporary names while it is being written.
func unfinished(path string) string { return "." + filepath.Base(path) + ".new-*" }

// Unfinished returns the temporary files that processes left which were killed while
// they wrote a file.
func Unfinished(path string) ([]string, error) {
	return filepath.Glob(filepath.Join(filepath.Dir(path), unfinished(path)))
}

// SyncDir makes the present names of a directory's files survive a crash of the
// machine.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
