package statemirror

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// paced gives a reference data plane desired states step by step, at a time of its own.
type paced struct {
	*PolicyPacer
	t    *testing.T
	fake *reference.Driver
	now  time.Time
	last desired.Host
	took time.Duration // by a step with a big change
}

func newPaced(t *testing.T, most int) *paced {
	t.Helper()
	p := &paced{PolicyPacer: NewPolicyPacer(), t: t, fake: reference.New(), now: time.Unix(1e9, 0), took: time.Minute}
	p.most = most
	p.fake.Interfaces(func(string) bool { return true })
	t.Cleanup(func() { _ = p.fake.Close() })
	return p
}

// step makes the next step, and checks what every step has to be.
func (p *paced) step(want desired.Host) Step {
	p.t.Helper()
	first := !p.known
	s := p.Next(want, p.now)
	changed, big := 0, 0
	for c := range s.Want.PolicySets.Diff(p.last.PolicySets) {
		if n := desired.CountDifferences(c.Old, c.New); n > p.most {
			big++
		} else {
			changed += n
		}
	}
	if !first && (big > 1 || changed > 2*p.most) {
		p.t.Fatalf("one step changes %d big sets, and others by %d entries, of %d", big, changed, p.most)
	}
	for name, o := range want.Ports.All() {
		is, ok := s.Want.Ports.Get(name)
		if !ok {
			p.t.Fatalf("port %s is left out", name)
		}
		set, _ := s.Want.PolicySets.Get(is.Policies)
		meant, _ := want.PolicySets.Get(o.Policies)
		as := *is
		as.Policies = o.Policies
		if _, waits := s.Waits[name]; as != *o || !waits && (is.Policies != o.Policies || set != meant) {
			p.t.Fatalf("port %s is %+v with %+v, want %+v with %+v, waits %v", name, is, set, o, meant, waits)
		} else if waits {
			p.waits(want, name, o, set)
		}
	}
	for name := range s.Want.Ports.All() {
		if _, ok := want.Ports.Get(name); !ok {
			p.t.Fatalf("port %s stays", name)
		}
	}
	rep, err := p.fake.Apply(p.t.Context(), s.Want)
	if err != nil || len(rep.Problems) > 0 {
		p.t.Fatal(err, rep.Problems)
	}
	st := s.Statuses(rep.Ports)
	for name := range want.Ports.All() {
		if _, waits := s.Waits[name]; (st.Err(name) != nil) != waits || waits && !errors.Is(st.Err(name), model.ErrUnavailable) {
			p.t.Fatalf("port %s: %v; waits %v", name, st.Err(name), waits)
		}
	}
	if (len(s.Problems()) > 0) != (len(s.Waits) > 0) || st.Len() != want.Ports.Len() {
		p.t.Fatalf("%d problems, %d ports, of %d that %d wait of", len(s.Problems()), st.Len(), want.Ports.Len(), len(s.Waits))
	}
	took := time.Duration(0)
	if big > 0 {
		took = p.took
	}
	p.now = p.now.Add(took)
	p.Done(s, took, p.now, nil)
	p.last = s.Want
	return s
}

// waits checks that a port whose policies wait has what it had, or what came of it, or nothing.
func (p *paced) waits(want desired.Host, name string, o *desired.Port, set *desired.PolicySet) {
	p.t.Helper()
	closed := set != nil && len(set.In) == 1 && len(set.Out) == 1 && set.In[0].Rules.Len()+set.Out[0].Rules.Len() == 0 &&
		set.In[0].Default == model.Deny && set.Out[0].Default == model.Deny
	old, had := p.last.Ports.Get(name)
	if !had || old.Endpoint != o.Endpoint {
		if !closed {
			p.t.Fatalf("new port %s waits with %+v", name, set)
		}
		return
	}
	was, _ := p.last.PolicySets.Get(old.Policies)
	if closed || set == was {
		return
	}
	if now, ok := want.PolicySets.Get(old.Policies); !ok || set != now || was == nil || now.Name != was.Name {
		p.t.Fatalf("port %s waits with %+v, and had %+v", name, set, was)
	}
}

// settle makes steps until nothing waits, and returns how many it were.
func (p *paced) settle(want desired.Host) int {
	p.t.Helper()
	for n := 1; ; n++ {
		s := p.step(want)
		in, more := p.Due(p.now)
		if !more {
			if len(s.Waits) > 0 || s.Want.Ports != want.Ports || differs(s.Want.PolicySets, want.PolicySets) {
				p.t.Fatalf("nothing waits, and the step is not the desired state: %v", s.Waits)
			}
			return n
		}
		if n > 1000 {
			p.t.Fatal("it never settles")
		}
		p.now = p.now.Add(in)
	}
}

func differs[K, V comparable](a, b desired.Map[K, V]) bool {
	for range a.Diff(b) {
		return true
	}
	return false
}

// hostOf is a host with containers of some sets on one network, by name.
func hostOf(sets map[desired.PolicySetID]*desired.PolicySet, ports map[string]desired.PolicySetID) desired.Host {
	h := desired.Host{Name: "h1", VTEP: netip.MustParseAddr("10.9.0.1"), ArpMode: model.ArpProxy}
	h.Networks = h.Networks.Set(1, &desired.Network{ID: 1, Encap: model.EncapVXLAN, Tag: 100, Subnet: netip.MustParsePrefix("10.1.0.0/16")})
	for id, s := range sets {
		h.PolicySets = h.PolicySets.Set(id, s)
	}
	for name, id := range ports {
		n, _ := strconv.Atoi(name)
		h.Ports = h.Ports.Set(name, &desired.Port{
			IfName: name, Endpoint: model.EndpointKey{ID: model.EndpointID(name)}, Network: 1,
			MAC: model.MAC{2, 2, 0, 0, 0, byte(n)}, IPv4: netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}), Identity: 300, Policies: id,
		})
	}
	return h
}

// weighing is a set of so many entries, none of which are those of another seed; it lets
// TCP port 80 through or not.
func weighing(id desired.PolicySetID, name string, entries, seed int, web model.Action) *desired.PolicySet {
	rules := []desired.Rule{{ID: "web", Priority: 9, Action: web, AnyPeer: true, Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: 80, Hi: 80}}}}
	for i := range entries - 1 {
		rules = append(rules, desired.Rule{
			ID: fmt.Sprintf("%d/%d", seed, i), Action: model.Allow,
			CIDRs: []desired.CIDR{{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(seed), byte(i >> 8), byte(i)}), 32)}},
		})
	}
	return &desired.PolicySet{ID: id, Name: name, In: []desired.Tier{{Tier: model.TierKubernetes, Default: model.Deny, Rules: desired.RulesOf(rules...)}}}
}

// TestBusySetDelaysNoOther: while one set is replaced before each pass, what others want is in
// force with the next pass, and of the passes with time between them less than half are
// for what is big; who is under the big policy waits for it, and gets it in the end.
func TestBusySetDelaysNoOther(t *testing.T) {
	p := newPaced(t, 50)
	sets := map[desired.PolicySetID]*desired.PolicySet{1: weighing(1, "big", 400, 0, model.Deny), 2: weighing(2, "small", 4, 0, model.Deny)}
	ports := map[string]desired.PolicySetID{"1": 1, "2": 2}
	p.settle(hostOf(sets, ports))
	big, steps, since := 0, 0, p.now
	var busy time.Duration
	for i := range 100 {
		sets[1] = weighing(1, "big", 400, 1+i, model.Deny)
		sets[2] = weighing(2, "small", 4, 1+i%3, model.Deny)
		before := p.now
		want := hostOf(sets, ports)
		s := p.step(want)
		steps++
		if set, _ := s.Want.PolicySets.Get(2); set != sets[2] {
			t.Fatalf("step %d: what another one wants waits", i)
		}
		if s.big {
			big++
			busy += p.now.Sub(before)
		} else {
			p.now = p.now.Add(p.took / 10) // until somebody else changes something
		}
	}
	if all := p.now.Sub(since); big < 5 || busy > all/2 {
		t.Errorf("%d of %d steps are for what is big, %v of %v", big, steps, busy, all)
	}
	if n := p.settle(hostOf(sets, ports)); n > 3 {
		t.Errorf("the last change takes %d passes", n)
	}
}

// TestBigSetsTakeTurns: of many big sets each has its turn, in the order in which they came,
// however often the first ones change again.
func TestBigSetsTakeTurns(t *testing.T) {
	p := newPaced(t, 50)
	sets, ports := map[desired.PolicySetID]*desired.PolicySet{}, map[string]desired.PolicySetID{}
	for i := range 5 {
		id := desired.PolicySetID(i + 1)
		sets[id] = weighing(id, strconv.Itoa(i), 10, 0, model.Deny)
		ports[strconv.Itoa(i)] = id
	}
	p.settle(hostOf(sets, ports))
	late := weighing(5, "4", 100, 9, model.Deny)
	for i := range 40 {
		for id := range desired.PolicySetID(4) {
			sets[id+1] = weighing(id+1, strconv.Itoa(int(id)), 100, i, model.Deny)
		}
		if i == 10 {
			sets[5] = late
		}
		s := p.step(hostOf(sets, ports))
		if got, _ := s.Want.PolicySets.Get(5); got == late {
			if i > 20 { // five turns, of two passes each
				t.Errorf("the last of five has its turn after %d passes", i-10)
			}
			return
		}
		in, _ := p.Due(p.now)
		p.now = p.now.Add(in)
	}
	t.Error("the last of five never has its turn")
}

// TestWaitingContainerGetsNoMoreThanBefore: a container whose policies wait gets no more than it had; a new one
// nothing at all, until its policies are in force.
func TestWaitingContainerGetsNoMoreThanBefore(t *testing.T) {
	p := newPaced(t, 50)
	open, shut := weighing(1, "one", 100, 1, model.Allow), weighing(1, "one", 100, 2, model.Deny)
	other := weighing(2, "two", 4, 0, model.Deny)
	want := hostOf(map[desired.PolicySetID]*desired.PolicySet{1: open, 2: other}, map[string]desired.PolicySetID{"1": 1, "2": 2})
	p.settle(want)
	from := uint16(20000)
	asks := func(h desired.Host, to string) bool {
		t.Helper()
		a, _ := want.Ports.Get("9")
		b, _ := h.Ports.Get(to)
		from++
		v := p.fake.Send(reference.Packet{
			Port: a.IfName, SrcMAC: a.MAC, DstMAC: b.MAC, Src: a.IPv4, Dst: b.IPv4, Proto: model.ProtoTCP, DstPort: 80,
			SrcPort: from, TCPFlags: reference.FlagSYN,
		})
		return len(v.Ports) > 0
	}
	// 1 keeps what it had, 2 moves below it and keeps what it had, 3 is new and closed.
	want = hostOf(map[desired.PolicySetID]*desired.PolicySet{1: shut}, map[string]desired.PolicySetID{"1": 1, "2": 1, "3": 1, "9": 0})
	p.step(want)
	for to, passes := range map[string]bool{"1": true, "2": false, "3": false} {
		if got := asks(want, to); got != passes {
			t.Errorf("while policies wait a connection to %s passes: %v", to, got)
		}
	}
	p.settle(want)
	for _, to := range []string{"1", "2", "3"} {
		if asks(want, to) {
			t.Errorf("with the policies in force a connection to %s passes", to)
		}
	}
	// Once more, the policy being opened: the new one alone is closed.
	want = hostOf(map[desired.PolicySetID]*desired.PolicySet{1: open}, map[string]desired.PolicySetID{"1": 1, "3": 1, "4": 1, "9": 0})
	p.step(want)
	p.settle(want)
	for _, to := range []string{"1", "3", "4"} {
		if !asks(want, to) {
			t.Errorf("with the policies in force no connection to %s passes", to)
		}
	}
}

// TestWholeStateIsAppliedAfterAFailure: after a pass that failed nothing is known, and the next is whole.
func TestWholeStateIsAppliedAfterAFailure(t *testing.T) {
	p := newPaced(t, 50)
	sets := map[desired.PolicySetID]*desired.PolicySet{1: weighing(1, "one", 4, 0, model.Deny), 2: weighing(2, "two", 4, 0, model.Deny)}
	ports := map[string]desired.PolicySetID{"1": 1, "2": 2}
	p.settle(hostOf(sets, ports))
	sets[1], sets[2] = weighing(1, "one", 100, 1, model.Deny), weighing(2, "two", 100, 1, model.Deny)
	want := hostOf(sets, ports)
	p.Done(p.Next(want, p.now), 0, p.now, errors.New("the switch is away"))
	if n := p.settle(want); n != 1 {
		t.Errorf("it takes %d passes", n)
	}
}

// TestPaceSaysWhatFails: a port that cannot be made tells that, and not that it waits.
func TestPaceSaysWhatFails(t *testing.T) {
	gone := driver.PortStatus{Err: model.Errorf(model.ErrNotFound, "no such interface")}
	s := Step{Waits: map[string]driver.PortStatus{"1": {Err: model.Errorf(model.ErrUnavailable, "it waits")}}}
	var of driver.PortStatuses
	of.Set("1", gone)
	of.Set("2", driver.PortStatus{})
	if got := s.Statuses(of); got.Err("1") != gone.Err || got.Len() != 2 || got.Err("2") != nil { //nolint:errorlint // the very error
		t.Errorf("the ports are %v and %v", got.Err("1"), got.Err("2"))
	}
}

// TestRandomPacingReachesTheDesiredState: whatever comes, every step keeps what all have to (paced.step), and it
// ends in the desired state.
func TestRandomPacingReachesTheDesiredState(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		p := newPaced(t, 30)
		sets, ports := map[desired.PolicySetID]*desired.PolicySet{}, map[string]desired.PolicySetID{}
		again := map[string]int{} // how often another container has come under an interface's name
		for range 120 {
			for range 1 + rnd.IntN(3) {
				name, id := strconv.Itoa(1+rnd.IntN(8)), desired.PolicySetID(1+rnd.IntN(5))
				if rnd.IntN(6) == 0 {
					id = ^desired.PolicySetID(0) - desired.PolicySetID(rnd.IntN(2)) // which waiting sets could have
				}
				switch rnd.IntN(5) {
				case 0:
					delete(ports, name)
				case 1:
					ports[name] = 0
				case 3:
					again[name]++
				case 2:
					ports[name] = id
				}
				if rnd.IntN(2) == 0 {
					as := strconv.Itoa(int(id))
					if rnd.IntN(10) == 0 { // its number is another's now
						as = "clash" + strconv.Itoa(rnd.IntN(3))
					}
					sets[id] = weighing(id, as, 1+rnd.IntN(10)*rnd.IntN(10), rnd.IntN(200), model.Deny)
				}
			}
			used := map[desired.PolicySetID]*desired.PolicySet{}
			for _, id := range ports {
				if id == 0 {
					continue
				}
				if sets[id] == nil {
					sets[id] = weighing(id, strconv.Itoa(int(id)), 1+rnd.IntN(60), rnd.IntN(200), model.Deny)
				}
				used[id] = sets[id]
			}
			want := hostOf(used, ports)
			for name, n := range again {
				if o, ok := want.Ports.Get(name); ok {
					as := *o
					as.Endpoint.ID += model.EndpointID("-" + strconv.Itoa(n))
					want.Ports = want.Ports.Set(name, &as)
				}
			}
			for range rnd.IntN(3) {
				p.step(want)
				if rnd.IntN(2) == 0 {
					p.now = p.now.Add(p.took)
				}
			}
			if rnd.IntN(10) == 0 {
				p.settle(want)
			}
		}
	}
}
