package netctl

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
)

const (
	// bugtoolTimeout is how long one source may take, unless --timeout says otherwise.
	bugtoolTimeout = 2 * time.Minute
	// bugtoolAtOnce is how many hosts are asked at the same time.
	bugtoolAtOnce = 4
	// maxSource is how long what one source sends may be, in bytes.
	maxSource = 64 << 20
)

type bugtoolOptions struct {
	common
	build api.Version
	hosts string
	file  string
}

func newBugtool(base common, build api.Version) *command {
	o := &bugtoolOptions{common: base, build: build}
	c := &command{
		name:     "bugtool",
		short:    "Pack logs, state, flows, maps and metrics of netmaster and of hosts into one archive, without secrets",
		examples: []string{"netctl bugtool fault.tar.gz", "netctl bugtool --host host1,host2 fault.tar.gz"},
		args:     []string{"FILE"},
	}
	c.flags.String(&o.hosts, "host", "HOSTS", "only these hosts, names separated by commas; none: all")
	c.flags.Bool(&o.quiet, "quiet, q", "print nothing but errors")
	c.run = bindRun(o, runBugtool, []*string{&o.file})
	return c
}

// bugtoolManifest is the last file of the archive.
type bugtoolManifest struct {
	Made    time.Time       `json:"made"`
	Netctl  string          `json:"netctl"`
	Sources []bugtoolSource `json:"sources"`
}

// bugtoolSource is a directory of the archive.
type bugtoolSource struct {
	Directory string              `json:"directory"`
	Error     string              `json:"error,omitempty"` // why all of it, or what follows, could not be had
	Manifest  *api.BundleManifest `json:"manifest,omitempty"`
}

// source is where something comes from: a host, or ("") the netmaster.
type source struct {
	host string
	file *os.File // what it sent
	err  error
}

func (s source) directory() string {
	if s.host == "" {
		return "netmaster"
	}
	return path.Join("hosts", strings.NewReplacer("/", "_", "..", "_").Replace(s.host))
}

func runBugtool(ctx context.Context, o *bugtoolOptions) (err error) {
	o.globals.timeout = cmp.Or(o.globals.timeout, bugtoolTimeout)
	client, err := o.client()
	if err != nil {
		return err
	}
	if err := refuseExisting(o.file); err != nil {
		return err
	}
	sources, err := o.sources(ctx, client)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "netctl-bugtool-")
	if err != nil {
		return fmt.Errorf("make a directory for hosts' bundles: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var asked sync.WaitGroup
	turns := make(chan struct{}, bugtoolAtOnce)
	for _, s := range sources {
		asked.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			s.err = s.fetch(ctx, client, dir, o.globals.timeout)
		})
	}
	asked.Wait()
	defer func() {
		for _, s := range sources {
			if s.file != nil {
				_ = s.file.Close() // it was read
			}
		}
	}()
	if err := ctx.Err(); err != nil {
		return err
	}
	if e, ok := errors.AsType[*api.Error](sources[0].err); ok && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden) {
		return sources[0].err // nor may who asks have anything of hosts
	}
	m := bugtoolManifest{Made: time.Now().UTC(), Netctl: o.build.Version, Sources: []bugtoolSource{}}
	err = o.writeNew(o.file, func(w io.Writer) error { return pack(w, sources, &m) })
	if err != nil || o.quiet || o.file == stdStream {
		return err
	}
	return o.printSummary(m)
}

// sources are the netmaster and the hosts that are asked for.
func (o *bugtoolOptions) sources(ctx context.Context, client *api.Client) ([]*source, error) {
	var names []string
	for name := range strings.SplitSeq(o.hosts, ",") {
		if name = strings.TrimSpace(name); name == "" && o.hosts != "" {
			return nil, flags.Usagef("--host %q: must be names of hosts, separated by commas", o.hosts)
		}
		names = append(names, name)
	}
	hosts, err := client.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	out := []*source{{}}
	for _, h := range hosts {
		if o.hosts != "" && !slices.Contains(names, h.Name) {
			continue
		}
		s := &source{host: h.Name}
		if h.State == api.HostAway {
			s.err = errors.New("the host is away")
		}
		out = append(out, s)
	}
	for _, name := range names {
		if o.hosts != "" && !slices.ContainsFunc(out, func(s *source) bool { return s.host == name }) {
			return nil, flags.Usagef("--host: there is no host %q; 'netctl host ls' lists them", name)
		}
	}
	return out, nil
}

// fetch keeps what a source sends in a file without a name.
func (s *source) fetch(ctx context.Context, client *api.Client, dir string, timeout time.Duration) error {
	if s.err != nil {
		return s.err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	f, err := os.CreateTemp(dir, "source-")
	if err != nil {
		return fmt.Errorf("save the bundle it sends: %w", err)
	}
	s.file = f
	return client.Bundle(ctx, s.host, &limitedWriter{f, maxSource})
}

// limitedWriter refuses to write more than left bytes.
type limitedWriter struct {
	io.Writer
	left int64
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, fmt.Errorf("it sends more than %d MiB", maxSource>>20)
	}
	return l.Writer.Write(p)
}

// pack writes the archive, and fills in the manifest.
func pack(w io.Writer, sources []*source, m *bugtoolManifest) error {
	zw := gzip.NewWriter(w)
	tw := tar.NewWriter(zw)
	for _, s := range sources {
		told := bugtoolSource{Directory: s.directory()}
		if s.file != nil {
			manifest, err := s.copyTo(tw, m.Made)
			told.Manifest = manifest
			if errors.Is(err, errArchive) {
				return err
			}
			s.err = errors.Join(s.err, err)
		}
		if s.err != nil {
			told.Error = message(s.err)
		}
		m.Sources = append(m.Sources, told)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	if err := supportbundle.WriteFile(tw, supportbundle.ManifestName, m.Made, append(text, '\n')); err != nil {
		return err
	}
	return errors.Join(tw.Close(), zw.Close())
}

// errArchive: the archive itself cannot be written.
var errArchive = errors.New("write the archive")

// copyTo adds the files that a source has sent, as far as they go.
func (s *source) copyTo(tw *tar.Writer, made time.Time) (m *api.BundleManifest, err error) {
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read the bundle it sent: %w", err)
	}
	for tr := tar.NewReader(s.file); ; {
		h, err := tr.Next()
		switch {
		case errors.Is(err, io.EOF) && m == nil:
			return nil, errors.New("the bundle it sent has no manifest: it was interrupted")
		case errors.Is(err, io.EOF):
			return m, nil
		case err != nil:
			return m, fmt.Errorf("read the bundle it sent: %w", err)
		}
		text, err := io.ReadAll(io.LimitReader(tr, maxSource))
		if err != nil {
			return m, fmt.Errorf("read %s of the bundle it sent: %w", h.Name, err)
		}
		if h.Name == supportbundle.ManifestName {
			m = &api.BundleManifest{}
			if err := json.Unmarshal(text, m); err != nil {
				return nil, fmt.Errorf("read its manifest: %w", err)
			}
			continue
		}
		if err := supportbundle.WriteFile(tw, path.Join(s.directory(), path.Base(h.Name)), made, text); err != nil {
			return m, fmt.Errorf("%w: %w", errArchive, err)
		}
	}
}

// printSummary says where the archive is, and what it lacks.
func (o *bugtoolOptions) printSummary(m bugtoolManifest) error {
	var lacks []string
	for _, s := range m.Sources {
		if s.Error != "" {
			lacks = append(lacks, fmt.Sprintf("%s: %s", s.Directory, s.Error))
			continue
		}
		for _, p := range s.Manifest.Parts {
			if p.Error != "" {
				lacks = append(lacks, fmt.Sprintf("%s/%s: %s", s.Directory, p.Name, p.Error))
			}
		}
	}
	slices.Sort(lacks)
	if _, err := fmt.Fprintf(o.out, "Packed netmaster and %d hosts into %s. Tokens, keys and passwords are left out; still, read it before you give it away.\n", len(m.Sources)-1, o.file); err != nil {
		return err
	}
	if len(lacks) == 0 {
		return nil
	}
	return printLines(o.out, append([]string{"What could not be had is in its manifest:"}, lacks...))
}
