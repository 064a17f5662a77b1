package supportbundle

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

const (
	// PartLimit is how long a part is at most, in bytes, where it says nothing else.
	PartLimit = 8 << 20
	// partTime bounds how long one part may take.
	partTime = 10 * time.Second
	// ManifestName is the last file of a bundle.
	ManifestName = "manifest.json"
)

// Part is a file of a bundle.
type Part struct {
	Name  string
	Limit int // bytes; 0 = PartLimit
	// Tail: of what is too long the end is kept, not the beginning.
	Tail bool
	Read func(ctx context.Context) ([]byte, error)
}

// Support is what a daemon knows of itself for people who search for a fault. The zero
// value knows nothing. Its methods are safe for concurrent use.
type Support struct {
	Version      string
	Log          *Ring                    // nil = the log is not kept
	SecretFiles  []string                 // whose lines are never told
	Certificates func() []api.Certificate // nil = there are none
	Dirs         map[string]string        // that the daemon writes to, by their use

	packing sync.Mutex // one bundle at a time: it costs memory
}

// Redactor knows this daemon's secrets as they are now.
func (s *Support) Redactor() *Redactor { return NewRedactor(s.SecretFiles...) }

// Lines are the newest lines of the log, without secrets.
func (s *Support) Lines() ([]byte, error) {
	if s.Log == nil {
		return nil, errors.New("this daemon does not keep its log")
	}
	return s.Redactor().Redact(s.Log.Bytes()), nil
}

// Machine tells of certificates and disks.
func (s *Support) Machine() api.Machine {
	m := api.Machine{Version: s.Version, Time: time.Now().UTC()}
	if s.Certificates != nil {
		m.Certificates = s.Certificates()
	}
	for use, path := range s.Dirs {
		m.Disks = append(m.Disks, diskOf(use, path))
	}
	slices.SortFunc(m.Disks, func(a, b api.Disk) int { return cmpText(a.Use, b.Use) })
	return m
}

// Pack writes a tar archive of the parts, and of the log and this process's goroutines, and
// its manifest as the last file.
func (s *Support) Pack(ctx context.Context, of string, parts []Part, w io.Writer) error {
	s.packing.Lock()
	defer s.packing.Unlock()
	parts = append([]Part{
		{Name: "log.txt", Tail: true, Read: func(context.Context) ([]byte, error) { return s.Lines() }},
		{Name: "goroutines.txt", Read: goroutines},
		{Name: "machine.json", Read: func(context.Context) ([]byte, error) { return json.MarshalIndent(s.Machine(), "", "  ") }},
	}, parts...)
	m := api.BundleManifest{Of: of, Version: s.Version, Made: time.Now().UTC(), Parts: []api.BundlePart{}}
	tw, redact := tar.NewWriter(w), s.Redactor()
	for _, p := range parts {
		told := api.BundlePart{Name: p.Name}
		text, err := p.read(ctx)
		if err != nil {
			told.Error = string(redact.Redact([]byte(err.Error())))
		}
		if len(text) > 0 || err == nil {
			text = redact.Redact(text) // before it is cut: a cut secret looks like none
			text, told.LeftOut = p.cut(text)
			told.Bytes = int64(len(text))
			if err := WriteFile(tw, p.Name, m.Made, text); err != nil {
				return err
			}
		}
		m.Parts = append(m.Parts, told)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	if err := WriteFile(tw, ManifestName, m.Made, append(text, '\n')); err != nil {
		return err
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	return nil
}

// read gives a part its time, and survives its panic.
func (p Part) read(ctx context.Context) (text []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("panic: %v", x)
		}
	}()
	return p.Read(ctx)
}

// cut bounds a part, and tells how many bytes are left out.
func (p Part) cut(text []byte) ([]byte, int64) {
	limit := p.Limit
	if limit == 0 {
		limit = PartLimit
	}
	over := len(text) - limit
	switch {
	case over <= 0:
		return text, 0
	case p.Tail:
		return text[over:], int64(over)
	}
	return text[:limit], int64(over)
}

// WriteFile adds a file to an archive.
func WriteFile(tw *tar.Writer, name string, made time.Time, text []byte) error {
	if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), ModTime: made}); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if _, err := tw.Write(text); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
