package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/objects"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// intentLab is a Keeper for whose pods Objects count, with namespace a and worlds; pods
// of a syncer's lab are made new by next.
type intentLab struct {
	*objectsLab
	pods         *lab
	n            int
	stopPolicies func() error // ends the leading of policies
}

func newIntentLab(t *testing.T, change ...func(*ObjectsConfig)) *intentLab {
	t.Helper()
	l := &intentLab{objectsLab: newObjectsLab(t, memory.New(), change...)}
	l.pods = newLab(t, func(c *Config) { c.Control, c.Intent = l.ctrl, l.objects })
	l.pods.ctrl = l.ctrl
	l.start(l.ctrl.Run)
	l.worlds()
	l.start(l.pods.syncer.Run)
	l.start(l.objects.Run)
	fence := l.leader()
	l.stopPolicies = l.start(func(ctx context.Context) error { return l.pods.syncer.Lead(ctx, fence) })
	l.pods.sources[mirror.Namespaces].Add(namespace("a", nil))
	return l
}

// next recreates the pod a/one and returns its wanted endpoint, within a time.
func (l *intentLab) next(within time.Duration, labels map[string]string) (model.Endpoint, error) {
	l.n++
	uid := fmt.Sprint("u", l.n)
	l.pods.again(fmt.Sprint("u", l.n-1), podNamed(uid, labels))
	return l.pods.asks(uid, within)
}

// waits fails unless a pod waits, in the end for why: on a busy machine first for more.
func (l *intentLab) waits(labels map[string]string, why string) {
	l.t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		_, err := l.next(500*time.Millisecond, labels)
		switch {
		case errors.Is(err, model.ErrUnavailable) && strings.Contains(err.Error(), why):
			return
		case !errors.Is(err, model.ErrUnavailable), time.Now().After(end):
			l.t.Errorf("a pod with %v: %v, want that it waits, with %q", labels, err, why)
			return
		}
	}
}

func (l *intentLab) comes(labels map[string]string) {
	l.t.Helper()
	if _, err := l.next(20*time.Second, labels); err != nil {
		l.t.Errorf("a pod with %v: %v", labels, err)
	}
}

func inGroup(name string) map[string]string { return map[string]string{"io.contiv.net-group": name} }

// judged is a spec with a status by which it is not kept.
func judged(spec, reason string) string {
	return spec + `,"status":{"conditions":[{"type":"Ready","status":"False","observedGeneration":1,"reason":"` + reason + `"}]}`
}

const shut = `{"rules":[{"ruleId":"1","direction":"in","action":"deny"}]}`

// TestPodsWaitForObjectWatches: with the watch of any kind behind that a pod is about, it
// waits.
func TestPodsWaitForObjectWatches(t *testing.T) {
	for kind, c := range map[string]struct {
		spec   string
		labels map[string]string
	}{
		objects.Policies:       {shut, nil},
		objects.EndpointGroups: {`{"networkName":"default-net"}`, nil},
		objects.Networks:       {`{"subnet":"10.3.0.0/16"}`, map[string]string{"io.contiv.network": "new"}},
		objects.Tenants:        {`{}`, map[string]string{"io.contiv.tenant": "new"}},
	} {
		t.Run(kind, func(t *testing.T) {
			l := newIntentLab(t, func(c *ObjectsConfig) { c.Sources[kind] = paused{c.Sources[kind]} })
			l.lead(l.leaderOfObjects())
			l.comes(nil)
			if err := l.objects.mirror.AwaitLists(t.Context()); err != nil { // by which nothing new is known
				t.Fatal(err)
			}
			if c.labels["io.contiv.tenant"] != "" {
				l.pods.sources[mirror.Namespaces].Modify(namespace("a", c.labels))
			}
			l.add(kind, "new", c.spec)
			l.waits(c.labels, "behind with "+kind)
		})
	}
}

// TestPodsWaitForObjects: while no leader writes them to the store, pods wait for objects
// that decide what may pass, and for objects that they name, and for no others.
func TestPodsWaitForObjects(t *testing.T) {
	l := newIntentLab(t)
	fence := l.leaderOfObjects()
	stop := l.lead(fence)
	pause := func() {
		t.Helper()
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	l.add(objects.Policies, "p", `{}`)
	l.add(objects.EndpointGroups, "g", `{"networkName":"default-net"}`)
	l.said("endpointgroups g", applied)
	l.said("policies p", applied)
	l.comes(nil)

	// Of what is there, all wait.
	pause()
	l.modify(objects.Policies, "p", shut)
	l.waits(nil, "behind with policies p")
	stop = l.lead(fence)
	l.comes(nil)
	if r := l.ctrl.Current().Policies.RulesOfPolicy(model.PolicyKey{Tenant: model.DefaultTenant, Name: "p"}); len(r) != 1 {
		t.Errorf("a pod came before the rules: %v", r)
	}
	pause()
	l.modify(objects.EndpointGroups, "g", `{"networkName":"default-net","policies":["p"]}`)
	l.waits(nil, "behind with endpointgroups g")
	stop = l.lead(fence)
	l.comes(inGroup("g"))

	// Of what is not there yet, those who name it, or who would be in it unasked.
	pause()
	l.add(objects.EndpointGroups, "h", `{"networkName":"default-net","policies":["p"]}`)
	l.waits(inGroup("h"), "behind with endpointgroups h")
	l.comes(nil)
	l.add(objects.EndpointGroups, "default-group", `{"networkName":"default-net","policies":["p"]}`)
	l.waits(nil, "behind with endpointgroups default-group")
	l.comes(inGroup("g"))
	stop = l.lead(fence)
	if e, err := l.next(20*time.Second, nil); err != nil || e.Group != "default-group" {
		t.Errorf("%s %v", text(e), err)
	}
	l.comes(inGroup("h"))

	// A rule that waited for its peer.
	l.modify(objects.Policies, "p", `{"rules":[{"ruleId":"1","direction":"in","action":"deny","fromEndpointGroup":"late"}]}`)
	l.said("policies p", "False Missing")
	l.comes(nil)
	pause()
	l.group("late", "default-net")
	l.waits(inGroup("late"), "behind with policies p")
	stop = l.lead(fence)
	l.comes(inGroup("late"))

	// What is to go is not waited for.
	pause()
	l.modify(objects.Policies, "p", `{}`, going)
	l.modify(objects.EndpointGroups, "h", `{"networkName":"default-net"}`, going)
	l.comes(nil)
}

// TestPodsWaitForNoOthers: what cannot be kept holds up those who name it or are in it.
func TestPodsWaitForNoOthers(t *testing.T) {
	l := newIntentLab(t)
	l.group("theirs", "default-net")
	p, err := model.Check(model.ContivPolicy{Key: model.PolicyKey{Tenant: model.DefaultTenant, Name: "users"}})
	if err == nil {
		_, err = l.ctrl.Put(t.Context(), control.Admin(), l.ctrl.Policies.ChangePolicy(p))
	}
	if err != nil {
		t.Fatal(err)
	}
	g, err := model.Check(model.Group{Key: model.GroupKey{Tenant: model.DefaultTenant, Name: "web"}, Network: "default-net", Policies: []model.PolicyName{"users"}})
	if err == nil {
		_, err = l.ctrl.Put(t.Context(), control.Admin(), l.ctrl.Tenants.ChangeGroup(g, false))
	}
	if err != nil {
		t.Fatal(err)
	}
	l.add(objects.Policies, "users", shut) // there is no leader to ask
	l.add(objects.EndpointGroups, "theirs", `{"networkName":"default-net","policies":["users"]}`)
	l.comes(inGroup("web"))
	l.comes(inGroup("theirs"))

	l.modify(objects.Policies, "users", judged(shut, "Refused"), adopting)
	l.waits(inGroup("web"), "behind with policies users (Refused)")
	l.comes(inGroup("theirs"))
	l.modify(objects.EndpointGroups, "theirs", judged(`{"networkName":"default-net","policies":["none"]}`, "Missing"), adopting)
	l.waits(inGroup("theirs"), "behind with endpointgroups theirs (Missing)")
	l.add(objects.Policies, "wrong", `{"rules":[{"ruleId":"1","direction":"aside","action":"deny"}]}`) // which the schema refuses
	l.add(objects.EndpointGroups, "wrong", judged(`{"networkName":"none"}`, "Missing"))
	l.comes(nil)

	again := func(o objects.Object) { o.SetGeneration(2) }
	l.modify(objects.Policies, "users", judged(shut, "Refused"), adopting, again) // that was the former one
	l.waits(nil, "behind with policies users")
	l.modify(objects.Policies, "users", shut)

	l.add(objects.Networks, "small", judged(`{"subnet":"10.1.0.0/30"}`, "Refused"))
	const why = "networks.contiv.io/small replaces it and is not stored (Refused): its status says why"
	began := time.Now()
	if _, err := l.next(20*time.Second, map[string]string{"io.contiv.network": "small"}); !errors.Is(err, model.ErrInvalid) || !strings.Contains(err.Error(), why) || time.Since(began) >= podWait {
		t.Errorf("a network that is refused: %v after %v", err, time.Since(began))
	}
	l.pods.wantReport(why)
	for end := time.Now().Add(time.Minute); ; {
		_, err := l.next(time.Second, inGroup("wrong"))
		if errors.Is(err, model.ErrUnavailable) && time.Now().Before(end) {
			continue // on a busy machine what was written is not known within the second
		}
		if !errors.Is(err, model.ErrInvalid) || !strings.Contains(err.Error(), "not stored (Missing)") {
			t.Errorf("a group that lacks its network: %v", err)
		}
		break
	}
	asked := make(chan error, 1)
	go func() {
		_, err := l.next(20*time.Second, inGroup("wrong"))
		asked <- err
	}()
	l.add(objects.Networks, "none", `{"subnet":"10.7.0.0/16"}`)
	l.lead(l.leaderOfObjects())
	if err := <-asked; err != nil {
		t.Errorf("a group whose network comes: %v", err)
	}
	if _, err := l.next(20*time.Second, inGroup("never")); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("a group for which nothing stands: %v", err)
	}
}

// TestPodsWaitForTheirTenant: a pod whose tenant comes while it waits does not go past policies
// that have yet to come there.
func TestPodsWaitForTheirTenant(t *testing.T) {
	l := newIntentLab(t)
	fence := l.leaderOfObjects()
	l.pods.sources[mirror.Namespaces].Modify(namespace("a", map[string]string{"io.contiv.tenant": "blue", "io.contiv.network": "own"}))
	l.pods.sources[mirror.NetworkPolicies].Add(isolate("a", "closed"))
	l.until("the namespace", func(v *control.View) bool { n, _ := v.Identities.Namespace("a"); return len(n.Labels) == 2 })
	if err := l.stopPolicies(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	l.add(objects.Networks, "own", `{"tenantName":"blue","subnet":"10.9.0.0/16"}`)
	l.add(objects.Tenants, "blue", `{}`)
	asked := make(chan error, 1)
	go func() {
		_, err := l.next(5*time.Second, nil)
		asked <- err
	}()
	l.lead(fence)
	if err := <-asked; !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "behind with networkpolicies a/closed") {
		t.Errorf("%v, want that it waits for the policy", err)
	}
}

// leaderOfObjects is a term of its own, beside the one of policies.
func (l *intentLab) leaderOfObjects() (f store.Fence) {
	l.t.Helper()
	rev, err := l.st.Update(context.Background(), func(tx store.Tx) error { return tx.Create("/test/objects", []byte("x"), nil) })
	if err != nil {
		l.t.Fatal(err)
	}
	return store.Fence{Key: "/test/objects", Create: rev}
}
