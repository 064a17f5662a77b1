package ebpf

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestChangeIsAtomic: a packet meets all of a change of a policy or nothing of
// it. Each state of the set denies, by a rule that outweighs one that allows;
// the rules of any two states together, in part, would allow.
func TestChangeIsAtomic(t *testing.T) {
	r := newRig(t)
	pic, a, b := r.neighbours(t)
	state := func(i int) *desired.PolicySet {
		level := 10 * (i%3 + 1)
		web := tcp16(80, 80)
		return &desired.PolicySet{ID: 2, In: []desired.Tier{{Default: model.Deny, Rules: desired.RulesOf(
			desired.Rule{ID: "allow group", Priority: level, Action: model.Allow, Identities: desired.IdentitiesOf(300), Ports: web},
			desired.Rule{ID: "allow range", Priority: level, Action: model.Allow, CIDRs: []desired.CIDR{{Prefix: netip.PrefixFrom(a.IPv4, 20+i%3)}}},
			desired.Rule{ID: "deny", Priority: level + 1, Action: model.Deny, AnyPeer: true, Ports: tcp16(80-i%2, 80+i%4)},
		)}}}
	}
	apply := func(drv driver.Driver, i int) {
		t.Helper()
		pic.PolicySets = pic.PolicySets.Set(2, state(i))
		if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(err, conformance.Failed(rep))
		}
	}
	drv := r.open(t)
	defer drv.Close()
	apply(drv, 0)
	stop, done := make(chan struct{}), make(chan [2]int)
	th := newThread(t, r.host)
	go th.do(func() {
		var other unix.CPUSet
		other.Set(runtime.NumCPU() - 1)
		_ = unix.SchedSetaffinity(0, &other) // with one processor nothing is under way meanwhile
		ctx := make([]byte, 192)
		binary.NativeEndian.PutUint32(ctx[40:], uint32(r.drv.dp.ports.indexes[a.IfName]))
		frame := conformance.Frame(web(a, b, 4000, 80))
		passed, sent := 0, 0
		for {
			select {
			case <-stop:
				done <- [2]int{passed, sent}
				return
			default:
			}
			ret, err := r.drv.dp.obj.FromContainer.Run(&ebpf.RunOptions{Data: frame, Context: ctx})
			if err != nil || ret == redirected {
				passed++
			}
			sent++
		}
	})
	end := time.Now().Add(2 * time.Second)
	changes := 0
	for i := 1; time.Now().Before(end); i++ {
		apply(drv, i)
		changes++
	}
	close(stop)
	if got := <-done; got[0] != 0 || got[1] < changes {
		t.Errorf("%d of %d packets pass while a policy that denies them changes %d times", got[0], got[1], changes)
	} else {
		t.Logf("%d packets, %d changes", got[1], changes)
	}
}

// TestRuleChangeCostsTheRule: a change of one rule writes as much in a set of 2,000 as in
// one of ten, and a restart writes nothing.
func TestRuleChangeCostsTheRule(t *testing.T) {
	few, many := 10, 2000
	c := newRuleChanger(t, 0, nil)
	defer func() { _ = c.drv.Close() }()
	for name, shape := range unfriendly {
		most := map[int]int{}
		for _, n := range []int{few, many} {
			c.rules = rulesLike(n, shape)
			c.apply()
			rnd := rand.New(rand.NewPCG(1, 2))
			for range 10 {
				w, _ := c.change(rnd.IntN(n))
				most[n] = max(most[n], w)
			}
		}
		t.Logf("%s: %d and %d writes at most", name, most[few], most[many])
		if most[many] > 2*most[few]+2 {
			t.Errorf("%s: a change writes up to %d entries in a set of %d rules, %d in one of %d", name, most[many], many, most[few], few)
		}
		if err := c.drv.Close(); err != nil {
			t.Fatal(err)
		}
		c.drv = c.open(t)
		was := c.rig.drv.dp.policies.Sets.have[2]
		c.apply()
		if now := c.rig.drv.dp.policies.Sets.have[2]; now != was {
			t.Errorf("%s: a restart turns generation %d into %d, and nothing has changed", name, was.Generation, now.Generation)
		}
	}
}

// ruleChanger changes rules of one set one at a time.
type ruleChanger struct {
	*rig
	t     testing.TB
	drv   driver.Driver
	pic   desired.Host
	rules desired.Rules
	turn  int
}

func newRuleChanger(t testing.TB, n int, shape func(i int) desired.Rule) *ruleChanger {
	t.Helper()
	r := newRig(t)
	pic, _, _ := r.neighbours(t)
	c := &ruleChanger{rig: r, t: t, pic: pic, rules: rulesLike(n, shape), drv: r.open(t)}
	c.apply()
	return c
}

func (c *ruleChanger) apply() (writes int, took time.Duration) {
	c.t.Helper()
	c.pic.PolicySets = c.pic.PolicySets.Set(2, &desired.PolicySet{ID: 2, In: []desired.Tier{{Tier: model.TierContiv, Default: model.Deny, Rules: c.rules}}})
	c.rig.drv.mu.Lock()
	for _, x := range c.rig.drv.dp.policies.index { // as if the last change were a while ago, so that none waits for packets under way
		x.switched = time.Time{}
	}
	c.rig.drv.mu.Unlock()
	begin := time.Now()
	rep, err := c.drv.Apply(c.t.Context(), c.pic)
	took = time.Since(begin)
	if err != nil || conformance.Failed(rep) != nil {
		c.t.Fatal(err, conformance.Failed(rep))
	}
	return rep.Changes, took
}

// change gives rule i another action, or takes it out and puts it in again.
func (c *ruleChanger) change(i int) (writes int, took time.Duration) {
	c.t.Helper()
	id := strconv.Itoa(i)
	old, ok := c.rules.Get(id)
	if !ok {
		c.t.Fatalf("no rule %s", id)
	}
	c.turn++
	now := *old
	now.Action = model.Deny
	if old.Action == model.Deny {
		now.Action = model.Allow
	}
	c.rules = c.rules.Set(id, &now)
	if c.turn%3 != 0 {
		return c.apply()
	}
	c.rules = c.rules.Delete(id)
	w1, t1 := c.apply()
	c.rules = c.rules.Set(id, &now)
	w2, t2 := c.apply()
	return max(w1, w2), (t1 + t2) / 2
}

// BenchmarkRule is the change of one rule among few and among many: the median
// over random rules, and the slowest tenth. The rules of both sizes are changed
// in turn, so that other work on the machine does not tell them apart.
func BenchmarkRule(b *testing.B) {
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for k := range unfriendly {
			if !yield(k) {
				return
			}
		}
	}) {
		b.Run(name, func(b *testing.B) {
			took := map[int][]time.Duration{}
			sizes := []int{10, 10000}
			changers := map[int]*ruleChanger{}
			for _, n := range sizes {
				changers[n] = newRuleChanger(b, n, unfriendly[name])
				defer changers[n].drv.Close()
			}
			rnd := rand.New(rand.NewPCG(1, 2))
			for b.Loop() {
				for _, n := range sizes {
					_, d := changers[n].change(rnd.IntN(n))
					took[n] = append(took[n], d)
				}
			}
			for n, d := range took {
				slices.Sort(d)
				b.ReportMetric(float64(d[len(d)/2].Microseconds()), fmt.Sprintf("us/%d", n))
				b.ReportMetric(float64(d[len(d)*9/10].Microseconds()), fmt.Sprintf("us-tenth/%d", n))
			}
		})
	}
}
