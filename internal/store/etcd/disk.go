package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

const (
	// quota is how large etcd's database may grow before it takes no more writes.
	quota = 8 << 30
	// lowSpace is how many free bytes are told of as few: etcd makes its log in
	// pieces of 64 MB.
	lowSpace = 256 << 20
	// diskEvery is how often the disk is looked at, and sayEvery how often a
	// trouble that lasts is told again.
	diskEvery = 3 * time.Second
	sayEvery  = 10 * time.Minute
)

// ender ends the goroutine in which etcd cannot go on, and tells why: it would
// end the process with a trace of itself.
type ender struct{ s *Server }

// OnWrite implements zapcore.CheckWriteHook; it does not return.
func (e ender) OnWrite(ce *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(ce.Message)
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			err = fmt.Errorf("%s: %w", ce.Message, cause)
		}
	}
	e.s.once.Do(func() { // the first reason tells most
		e.s.why = model.Errorf(model.ErrUnavailable, "%w; %s", err, e.s.advice())
		close(e.s.died)
	})
	zapcore.WriteThenGoexit.OnWrite(ce, fields)
}

// advice says what to do about a server that cannot write.
func (s *Server) advice() string {
	switch d := s.Disk(); {
	case d.Lost:
		return fmt.Sprintf("the data directory %s was removed while netmaster ran: put it back from a backup before netmaster starts again, or it makes a new cluster", s.dir)
	case d.Free < 1<<20:
		return fmt.Sprintf("the disk of %s is full: free some space there and start netmaster again; what was answered is kept", s.dir)
	}
	return fmt.Sprintf("see that %s (--data-dir) can be written, and start netmaster again", s.dir)
}

// Broken tells whether a part of the server has ended by itself.
func (s *Server) Broken() bool {
	select {
	case <-s.died:
		return true
	default:
		return false
	}
}

// Disk is what a server knows of its data directory.
type Disk struct {
	Free  uint64 // bytes that its file system has left
	Size  int64  // bytes of the database
	Quota int64  // bytes that the database may have
	Lost  bool   // somebody has removed or replaced the directory
}

// Disk looks at the data directory.
func (s *Server) Disk() Disk {
	d := Disk{Quota: quota, Lost: s.lost()}
	var st unix.Statfs_t
	if unix.Fstatfs(int(s.lock.Fd()), &st) == nil {
		d.Free = st.Bavail * uint64(st.Bsize)
	}
	if e := s.etcd.Load(); e != nil {
		d.Size = e.Server.Backend().Size()
	}
	return d
}

// lost tells whether the lock that this process holds is no longer the one in
// the directory, or the database has been taken from there.
func (s *Server) lost() bool {
	held, err := s.lock.Stat()
	if err != nil {
		return false // closed
	}
	there, err := os.Stat(filepath.Join(s.dir, lockName))
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	if s.etcd.Load() != nil {
		if _, err := os.Stat(filepath.Join(s.dir, "member")); errors.Is(err, os.ErrNotExist) {
			return true
		}
	}
	return !os.SameFile(held, there)
}

// Trouble says what an operator should do about the disk now; "" when nothing.
func (s *Server) Trouble() string {
	switch d := s.Disk(); {
	case d.Lost:
		return fmt.Sprintf("the data directory %s was removed while netmaster runs: all of the cluster's state is lost when netmaster ends; export it now ('netctl export --in-use') and do not stop netmaster before", s.dir)
	case d.Free < lowSpace:
		return fmt.Sprintf("the disk of the data directory %s has %d MB left: when it is full netmaster ends", s.dir, d.Free/1e6)
	case d.Size > d.Quota/5*4:
		return fmt.Sprintf("the store holds %d of the %d MB that it may have: when it is full it takes no writes", d.Size/1e6, d.Quota/1e6)
	}
	return ""
}

// watchDisk tells people of the disk before it is full.
func (s *Server) watchDisk(ctx context.Context) {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	var told string
	var at time.Time
	for {
		kind := ""
		if text := s.Trouble(); text != "" {
			kind = text[:min(len(text), 30)] // without its numbers
			if kind != told || time.Since(at) >= sayEvery {
				s.log.Error("the store is in danger", "what", text)
				at = time.Now()
			}
		} else if told != "" {
			s.log.Info("the store is out of danger")
		}
		told = kind
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Collectors are gauges of the disk.
func (s *Server) Collectors() []prometheus.Collector {
	gauge := func(name, help string, of func(Disk) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return of(s.Disk()) })
	}
	return []prometheus.Collector{
		gauge("contiv_store_disk_free_bytes", "Free bytes in the file system of the embedded store.", func(d Disk) float64 { return float64(d.Free) }),
		gauge("contiv_store_directory_lost", "1 when somebody has removed the embedded store's directory.", func(d Disk) float64 {
			if d.Lost {
				return 1
			}
			return 0
		}),
	}
}
