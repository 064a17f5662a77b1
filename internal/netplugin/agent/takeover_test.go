package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// steps records, in order, what is asked of the old driver and the new one.
type steps struct {
	driver.Driver // the new one

	mu    sync.Mutex
	done  []string
	fails map[string]error // once each
	seen  chan struct{}    // closed when what failed was told; until then it is not tried again; nil = it is
}

func (s *steps) step(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = append(s.done, what)
	err := s.fails[what]
	delete(s.fails, what)
	return err
}

func (s *steps) Apply(ctx context.Context, want desired.Host) (driver.Report, error) {
	if err := s.step(fmt.Sprintf("apply %d ports", want.Ports.Len())); err != nil {
		return driver.Report{Revision: want.Revision}, err
	}
	return s.Driver.Apply(ctx, want)
}

func (s *steps) Capabilities() driver.Capabilities { return driver.Capabilities{Preparer: s} }

func (s *steps) Prepare(ctx context.Context, _ desired.Host) error {
	if s.seen != nil && len(s.taken()) > 0 {
		select {
		case <-s.seen:
		case <-ctx.Done():
		}
	}
	return s.step("prepare")
}

func (s *steps) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.done...)
}

type oldDriver struct{ s *steps }

func (o oldDriver) Release(context.Context) error { return o.s.step("release") }
func (o oldDriver) Remove(context.Context) error  { return o.s.step("remove") }
func (o oldDriver) String() string                { return "the old driver" }

// TestPreviousDriversObjectsGoAfterTheApply: the old driver's things go after the new one holds the whole
// desired state, never before, and what fails is tried again.
func TestPreviousDriversObjectsGoAfterTheApply(t *testing.T) {
	whole := []string{"prepare", "release", "apply 1 ports", "remove", "apply 1 ports"}
	for _, tt := range []struct {
		name    string
		fails   string
		want    []string
		problem bool
	}{
		{"straight", "", whole, false},
		{"the new one cannot be prepared", "prepare", append([]string{"prepare"}, whole...), false},
		{"the tunnel cannot be released", "release", append([]string{"prepare", "release"}, whole...), false},
		{"the new one refuses the desired state", "apply 1 ports", append([]string{"prepare", "release", "apply 1 ports"}, whole...), false},
		{"the old one cannot be removed", "remove", append([]string{"prepare", "release", "apply 1 ports", "remove"}, whole...), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			b.ready()
			if _, err := b.client().Attach(t.Context(), request("c1", newSandbox(t))); err != nil {
				t.Fatal(err)
			}
			b.stop()
			b.fake = reference.New() // which knows nothing of what the old one did
			s := &steps{Driver: b.fake, fails: map[string]error{}}
			if tt.fails != "" {
				s.fails[tt.fails] = errors.New("broken by the test")
			}
			if tt.problem {
				s.seen = make(chan struct{})
			}
			b.cfg.Predecessor = oldDriver{s}
			b.startWith(s)
			sawProblem := false
			b.eventually("the old driver's things have gone", func() error {
				for k := range b.agent.Observer.State().Problems {
					if strings.Contains(k, "the old driver") && !sawProblem {
						sawProblem = true
						if s.seen != nil {
							close(s.seen)
						}
					}
				}
				if got := s.taken(); len(got) < len(tt.want) {
					return fmt.Errorf("steps %q", got)
				}
				return nil
			})
			b.ready()
			if diff := cmp.Diff(tt.want, s.taken()[:len(tt.want)]); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if sawProblem != tt.problem {
				t.Errorf("a problem that names the old driver was shown: %v, want %v", sawProblem, tt.problem)
			}
			before := len(s.taken())
			b.agent.kick("the test")
			b.eventually("one more pass", func() error {
				if got := s.taken(); len(got) == before {
					return fmt.Errorf("steps %q", got)
				}
				return nil
			})
			if got := s.taken()[before]; got != "apply 1 ports" {
				t.Errorf("after the change: %q, want no word to the old driver", got)
			}
			if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}}); err != nil {
				t.Error(err)
			}
			b.nothingLeft()
		})
	}
}
