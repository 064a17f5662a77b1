package store

import (
	"context"
	"sync"
)

// freshness lets concurrent readers share reads of the store: one is under way
// at a time, and everybody who asks meanwhile shares the next one, since only a
// read that begins after somebody asked is fresh for them.
type freshness struct {
	mu   sync.Mutex
	busy *sharedRead // under way: began before the caller came
	next *sharedRead // begins when busy ends; everybody who comes now may share it
}

type sharedRead struct {
	begin chan struct{} // closed when its leader may begin
	done  chan struct{}
	rev   Revision
	err   error
	left  bool // the leader's context has ended
}

func (r *freshness) read(ctx context.Context, read func(context.Context) (Revision, error)) (Revision, error) {
	for {
		call, lead := r.join()
		if lead {
			return r.lead(ctx, call, read)
		}
		select {
		case <-call.done:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		// The leader reads with its own context. When that has ended, which says
		// nothing of the store, the others choose another; what failed they share.
		if call.err == nil || !call.left {
			return call.rev, call.err
		}
	}
}

// join returns the read that is fresh for who asks now, and whether it is theirs
// to lead.
func (r *freshness) join() (call *sharedRead, lead bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil {
		return r.next, false
	}
	call = &sharedRead{begin: make(chan struct{}), done: make(chan struct{})}
	if r.busy == nil {
		r.busy = call
		close(call.begin)
	} else {
		r.next = call
	}
	return call, true
}

func (r *freshness) lead(ctx context.Context, call *sharedRead, read func(context.Context) (Revision, error)) (Revision, error) {
	<-call.begin
	call.rev, call.err = read(ctx)
	call.left = ctx.Err() != nil
	r.mu.Lock()
	if r.busy, r.next = r.next, nil; r.busy != nil {
		close(r.busy.begin)
	}
	r.mu.Unlock()
	close(call.done)
	return call.rev, call.err
}
