package ovs

import (
	"context"
	"slices"
	"time"
)

// A switch that finds in one look at the database that a port has gone and that another
// one of its name has come takes the two for one. In user space it goes on reading from
// the former interface then, which is gone, and takes in nothing of the new one. So a port
// whose name was there a moment ago is made only when the switch has let go of it.

// releasedFor is how long a name is remembered: any switch that lives has looked by then.
const releasedFor = time.Minute

// noteReleased remembers ports that the switch was told to let go of.
func (s *ports) noteReleased(names []string) {
	now := time.Now()
	for name, at := range s.left {
		if now.Sub(at) > releasedFor {
			delete(s.left, name)
		}
	}
	for _, name := range names {
		s.left[name] = now
	}
}

// waitReleased waits until the switch has let go of former ports of the names of new ones.
func (s *ports) waitReleased(ctx context.Context, next []newPort) error {
	if !slices.ContainsFunc(next, func(p newPort) bool { _, ok := s.left[p.name]; return ok }) {
		return nil
	}
	if err := s.conns.db.follow(ctx, s.cfg.Bridge, s.patience, nil); err != nil {
		return err
	}
	clear(s.left)
	return nil
}
