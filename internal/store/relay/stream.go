package relay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	iradix "github.com/hashicorp/go-immutable-radix"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/strictjson"
	"github.com/contiv/netplugin/v2/internal/store"
)

const (
	// partBytes is how much is sent at a time: of a list, or of what waits.
	partBytes = 64 << 10
	// maxRequest is the longest line of a client, in bytes.
	maxRequest = 64 << 10
)

// stream is one client.
type stream struct {
	wake waiting.Bell
	who  string // its client's name; empty = it is not known

	// Guarded by the hub's mutex.
	mirrors map[int]*topic
	asked   int // bytes of the prefixes of these
	queue   []item
	bytes   int    // of the lines in it
	end     string // why nothing more is queued
	slow    bool   // that is its client's fault
}

// item is what waits to be sent: a line for a mirror (0 = for the stream), a list, or what
// commits have left.
type item struct {
	id    int
	line  []byte
	after store.Revision // of a line of a commit, or of gap: it follows the state of this revision; 0 = it is no commit's
	list  *iradix.Tree
	gap   []commit
	of    *topic
	rev   store.Revision // of list and gap

	place, since string // likewise; since of a list
}

// pushLocked queues an item. Where much waits, the client gets what it leaves.
func (h *Hub) pushLocked(s *stream, it item) {
	if s.end != "" {
		return
	}
	s.queue, s.bytes = append(s.queue, it), s.bytes+len(it.line)
	if len(s.queue) > maxWaiting+2*len(s.mirrors) || s.bytes > maxWaitingBytes {
		h.collapseLocked(s)
	}
	s.wake.Ring()
}

// collapseLocked replaces the commits that wait for a client by what they leave.
func (h *Hub) collapseLocked(s *stream) {
	h.counts.Collapsed++
	after := map[int]store.Revision{} // of the first commit of a mirror that waits
	var kept []item
	for _, it := range s.queue {
		switch _, waits := after[it.id]; {
		case it.id == 0: // it would tell of what is sent later now
		case it.list != nil || it.after == 0: // a new beginning
			delete(after, it.id)
			kept = append(kept, it)
		case !waits:
			after[it.id] = it.after
		}
	}
	s.queue, s.bytes = kept, 0
	for _, it := range kept {
		s.bytes += len(it.line)
	}
	for id, rev := range after {
		t := s.mirrors[id]
		if t == nil {
			continue
		}
		gap, ok := h.history.after(rev)
		if !ok || h.history.rev != h.rev {
			h.counts.Lists++
			s.queue = append(s.queue, item{id: id, list: h.rows, of: t, rev: h.rev, place: h.place})
			continue
		}
		s.queue = append(s.queue, item{id: id, gap: gap, of: t, rev: h.rev, place: h.place, after: rev})
	}
}

func (s *stream) endLocked(why string) {
	if s.end == "" {
		s.end, s.queue, s.bytes = why, nil, 0
		s.wake.Ring()
	}
}

// Serve answers one client until ctx ends or its asks do, and returns why it ended it: an
// error of send, or a reason that the client was told. who is the client's name, empty =
// it is not known; of one that is, the oldest streams end when it has too many. asks is read until it ends or
// fails, which stop, called before Serve waits for that, has to bring about. send writes
// some lines, and bounds how long that takes.
func (h *Hub) Serve(ctx context.Context, who string, asks io.Reader, stop func(), send func([]byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	if err := h.fresh(ctx); err != nil {
		cancel()
		return h.sendEnd(send, fmt.Sprintf("this netmaster receives no changes of the store: %v", err))
	}
	s := &stream{wake: waiting.NewBell(), who: who, mirrors: map[int]*topic{}}
	h.mu.Lock()
	h.enterLocked(s)
	h.pushLocked(s, item{line: freshLine})
	h.mu.Unlock()
	h.bell.Ring()
	var reading sync.WaitGroup
	defer func() {
		stop()
		cancel()
		reading.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.forgetLocked(s)
		for id := range s.mirrors {
			h.leaveLocked(s, id)
		}
		if s.slow {
			h.counts.Cut++
		}
	}()
	reading.Go(func() {
		defer cancel() // a client that asks no more has gone
		h.read(ctx, s, asks)
	})
	return h.write(ctx, s, send)
}

func (h *Hub) sendEnd(send func([]byte) error, why string) error {
	if err := send(line(api.MirrorMessage{End: why})); err != nil {
		return err
	}
	return model.Errorf(model.ErrUnavailable, "%s", why)
}

// read does what the client asks for, until it asks no more.
func (h *Hub) read(ctx context.Context, s *stream, asks io.Reader) {
	lines := bufio.NewScanner(asks)
	lines.Buffer(nil, maxRequest)
	for lines.Scan() {
		var ask api.MirrorRequest
		err := strictjson.Decode(lines.Bytes(), &ask)
		switch {
		case err != nil:
			err = model.Errorf(model.ErrInvalid, "mirror: a line is not a request: %w", err)
		case ask.End:
			h.mu.Lock()
			h.leaveLocked(s, ask.ID)
			h.mu.Unlock()
		default: // the list must have all that was committed before it was asked for
			if err = h.fresh(ctx); err == nil {
				err = h.begin(s, ask)
			}
		}
		if err != nil {
			h.mu.Lock()
			s.endLocked(err.Error())
			h.mu.Unlock()
			<-ctx.Done() // the client gets a message before its connection ends
			return
		}
	}
}

// write sends what waits.
func (h *Hub) write(ctx context.Context, s *stream, send func([]byte) error) error {
	var out []byte
	for {
		h.mu.Lock()
		queue, end := s.queue, s.end
		s.queue, s.bytes = nil, 0
		until := time.Now().Add(h.listsFor)
		h.mu.Unlock()
		for _, it := range queue {
			if time.Now().After(until) {
				h.mu.Lock()
				s.slow = true
				h.mu.Unlock()
				return h.sendEnd(send, "cut off: what was asked for is not read fast enough")
			}
			var err error
			if out, err = h.put(ctx, s, out, it, send); err != nil {
				return err
			}
		}
		if len(out) > 0 {
			if err := send(out); err != nil {
				return err
			}
			out = out[:0]
		}
		if end != "" {
			return h.sendEnd(send, end)
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// older reports whether the store's history lacks a commit.
func (h *Hub) older(ctx context.Context, since string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, freshTime)
	defer cancel()
	return h.source.Older(ctx, since)
}

// put adds an item to what is sent next, and sends when that is enough.
func (h *Hub) put(ctx context.Context, s *stream, out []byte, it item, send func([]byte) error) ([]byte, error) {
	flush := func() error {
		if len(out) < partBytes {
			return nil
		}
		err := send(out)
		out = out[:0]
		return err
	}
	switch {
	case it.id == 0:
		out = append(out, it.line...)
		return out, flush()
	case it.line != nil:
		out = addressed(out, strconv.AppendInt(nil, int64(it.id), 10), it.line)
		return out, flush()
	}
	h.mu.Lock()
	wanted := s.mirrors[it.id] == it.of
	h.mu.Unlock()
	if !wanted {
		return out, nil
	}
	if it.list == nil {
		rows := it.of.difference(it.gap, h.access.Show)
		out = append(out, line(api.MirrorMessage{ID: it.id, Resumed: true, Rows: rows, Revision: int64(it.rev), Place: it.place})...)
		return out, flush()
	}
	part, size := api.MirrorMessage{ID: it.id, List: true}, 0
	for _, p := range it.of.prefixes {
		rows := it.list.Root().Iterator()
		rows.SeekPrefix([]byte(p))
		for _, v, ok := rows.Next(); ok; _, v, ok = rows.Next() {
			kv, shown := h.access.Show(it.of.grade, v.(store.KV))
			if !shown {
				continue
			}
			part.Rows = append(part.Rows, toWire(kv))
			if size += len(kv.Key) + len(kv.Value); size < partBytes {
				continue
			}
			out = append(out, line(part)...)
			if err := flush(); err != nil {
				return out, err
			}
			part.Rows, size = part.Rows[:0], 0
		}
	}
	part.Revision, part.Place, part.Partial = int64(it.rev), it.place, it.of.grade.Partial
	part.Grade = it.of.grade.Name
	if it.since != "" {
		// After the list: what the store has now, it had then, or this stream ends.
		var err error
		if part.Older, err = h.older(ctx, it.since); err != nil {
			return out, h.sendEnd(send, fmt.Sprintf("this netmaster does not know whether the store is at an older state: %v", err))
		}
	}
	if v, ok := it.list.Get([]byte(store.StoreIdentityKey)); ok {
		row := toWire(v.(store.KV))
		part.Identity = &row
	}
	out = append(out, line(part)...)
	return out, flush()
}
