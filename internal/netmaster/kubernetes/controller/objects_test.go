package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	served "k8s.io/client-go/tools/cache/testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/objects"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// absent is a source whose resource an API server may lack.
type absent struct {
	*source
	gone bool
}

func (a *absent) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if a.gone {
		return &metav1.PartialObjectMetadataList{}, nil // as mirror's has it
	}
	return a.source.List(ctx, o)
}

func (a *absent) Versions(ctx context.Context) (runtime.Object, error) {
	return a.List(ctx, metav1.ListOptions{})
}

type objectsLab struct {
	*lab
	objects     *Objects
	of          map[string]*absent
	writtenBack map[string]WriteBack
}

func newObjectsLab(t *testing.T, st *memory.Store, change ...func(*ObjectsConfig)) *objectsLab {
	t.Helper()
	l := &objectsLab{lab: &lab{t: t, st: st}, of: map[string]*absent{}, writtenBack: map[string]WriteBack{}}
	l.ctrl = control.New(l.st, control.Options{})
	c := ObjectsConfig{Control: l.ctrl, Sources: map[string]mirror.Source{}, Every: 20 * time.Millisecond, Tell: func(r Report) {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.writtenBack, r.Kind+" "+r.Name.Name)
		if r.WriteBack != nil {
			l.writtenBack[r.Kind+" "+r.Name.Name] = *r.WriteBack
		}
	}}
	for _, k := range objects.Kinds() {
		l.of[k.Plural] = &absent{source: &source{FakeControllerSource: served.NewFakeControllerSource()}}
		c.Sources[k.Plural] = l.of[k.Plural]
	}
	for _, f := range change {
		f(&c)
	}
	l.objects = NewObjects(c)
	return l
}

func (l *objectsLab) lead(fence store.Fence) (stop func() error) {
	return l.start(func(ctx context.Context) error { return l.objects.Lead(ctx, fence) })
}

// object makes one of a kind of a spec in JSON.
func (l *objectsLab) object(plural, name, spec string, change ...func(objects.Object)) objects.Object {
	l.t.Helper()
	for _, k := range objects.Kinds() {
		if k.Plural != plural {
			continue
		}
		o := k.New()
		if err := json.Unmarshal([]byte(`{"spec":`+spec+`}`), o); err != nil {
			l.t.Fatal(err)
		}
		o.SetName(name)
		o.SetUID(types.UID(plural + name))
		o.SetGeneration(1)
		for _, f := range change {
			f(o)
		}
		return o
	}
	l.t.Fatal(plural)
	return nil
}

func (l *objectsLab) add(plural, name, spec string, change ...func(objects.Object)) {
	l.t.Helper()
	l.of[plural].Add(l.object(plural, name, spec, change...))
}

func (l *objectsLab) modify(plural, name, spec string, change ...func(objects.Object)) {
	l.t.Helper()
	l.of[plural].Modify(l.object(plural, name, spec, change...))
}

// going is an object that is to go, and waits for its finalizer.
func going(o objects.Object) {
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	o.SetFinalizers([]string{objects.Finalizer})
}

func adopting(o objects.Object) { o.SetAnnotations(map[string]string{objects.Adopt: "true"}) }

// said waits until an object's report contains all parts.
func (l *objectsLab) said(object string, parts ...string) {
	l.t.Helper()
	last := ""
	for end := time.Now().Add(time.Minute); ; <-time.After(2 * time.Millisecond) {
		l.mu.Lock()
		k, told := l.writtenBack[object]
		l.mu.Unlock()
		if told {
			c := k.Status.Conditions[0]
			last = fmt.Sprintf("%s %s %s waits=%v %s", c.Status, c.Reason, k.Status.Owner, k.Waits, c.Message)
		}
		missing := !told
		for _, p := range parts {
			missing = missing || !strings.Contains(last, p)
		}
		if !missing {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("%s is told of as %q, want %q", object, last, parts)
		}
	}
}

// until waits for what the view has.
func (l *objectsLab) until(what string, holds func(*control.View) bool) {
	l.t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(2 * time.Millisecond) {
		v, err := l.ctrl.View(context.Background())
		if err != nil {
			l.t.Fatal(err)
		}
		if holds(v) {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("not so: %s; %v", what, v.Ownerships())
		}
	}
}

func (l *objectsLab) owned(n int) {
	l.t.Helper()
	l.until(fmt.Sprint(n, " objects are owned"), func(v *control.View) bool { return len(v.Ownerships()) == n })
}

const applied = "True Applied kubernetes waits=true"

// TestObjectsAreWrittenToTheStore: in any order; what refers to each other comes and goes all the same;
// what changes is changed; the next leader finds what has changed meanwhile.
func TestObjectsAreWrittenToTheStore(t *testing.T) {
	l := newObjectsLab(t, memory.New())
	l.start(l.ctrl.Run)
	l.start(l.objects.Run)
	stop := l.lead(l.leader())
	l.add(objects.EndpointGroups, "g", `{"tenantName":"t","networkName":"n","policies":["p"]}`)
	l.add(objects.Policies, "p", `{"tenantName":"t","rules":[{"ruleId":"1","direction":"in","action":"deny","fromEndpointGroup":"g"},{"ruleId":"2","direction":"out","action":"deny","toNetwork":"n"}]}`)
	l.add(objects.Networks, "n", `{"tenantName":"t","subnet":"10.1.0.0/16"}`)
	l.said("endpointgroups g", "False Missing", `does not exist`, "waits=false")
	l.add(objects.Tenants, "t", `{"defaultNetwork":"n"}`)
	l.add(objects.NetProfiles, "np", `{"tenantName":"t","DSCP":3}`)
	for _, o := range []string{"tenants t", "networks n", "policies p", "endpointgroups g", "netprofiles np"} {
		l.said(o, applied)
	}
	l.owned(5)
	l.until("the policy is whole", func(v *control.View) bool {
		return len(v.Policies.RulesOfPolicy(model.PolicyKey{Tenant: "t", Name: "p"})) == 2
	})
	l.modify(objects.Policies, "p", `{"tenantName":"t","rules":[{"ruleId":"1","direction":"in","action":"allow"}]}`)
	l.modify(objects.NetProfiles, "np", `{"tenantName":"t","DSCP":4}`)
	l.until("the changes", func(v *control.View) bool {
		r := v.Policies.RulesOfPolicy(model.PolicyKey{Tenant: "t", Name: "p"})
		np, _ := control.NetProfile(v, model.NetProfileKey{Tenant: "t", Name: "np"})
		return len(r) == 1 && r[0].Action == model.Allow && r[0].Group == "" && np.DSCP == 4
	})
	// A look at all writes nothing.
	rev := l.ctrl.Current().Revision()
	l.objects.work.addAll()
	l.modify(objects.NetProfiles, "np", `{"tenantName":"t","DSCP":5}`)
	l.until("the next change", func(v *control.View) bool {
		np, _ := control.NetProfile(v, model.NetProfileKey{Tenant: "t", Name: "np"})
		return np.DSCP == 5
	})
	if now := l.ctrl.Current().Revision(); now != rev+1 {
		t.Errorf("one change of one object is %d commits", now-rev)
	}

	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Lead: %v", err)
	}
	l.of[objects.NetProfiles].Delete(l.object(objects.NetProfiles, "np", `{}`)) // without a finalizer
	l.modify(objects.Tenants, "t", `{}`)
	stopped, err := l.st.Update(context.Background(), func(tx store.Tx) error { tx.Delete("/test/leader"); return nil })
	if err != nil || stopped == 0 {
		t.Fatal(err)
	}
	l.lead(l.leader())
	l.owned(4)
	l.until("no default network", func(v *control.View) bool {
		x, _ := v.Tenants.Get("t")
		return x.DefaultNetwork == ""
	})

	// A policy and the group that it names, and that has it, go together.
	l.modify(objects.Policies, "p", `{"tenantName":"t","rules":[{"ruleId":"1","direction":"in","action":"deny","fromEndpointGroup":"g"}]}`)
	l.until("the rule", func(v *control.View) bool {
		r := v.Policies.RulesOfPolicy(model.PolicyKey{Tenant: "t", Name: "p"})
		return len(r) == 1 && r[0].Group == "g"
	})
	l.modify(objects.Policies, "p", `{"tenantName":"t","rules":[{"ruleId":"1","direction":"in","action":"deny","fromEndpointGroup":"g"}]}`, going)
	l.said("policies p", "True InUse kubernetes waits=true", "endpoint groups")
	l.modify(objects.Networks, "n", `{"tenantName":"t","subnet":"10.1.0.0/16"}`, going)
	l.modify(objects.Tenants, "t", `{}`, going)
	l.modify(objects.EndpointGroups, "g", `{"tenantName":"t","networkName":"n","policies":["p"]}`, going)
	l.owned(0)
	for _, o := range []string{"tenants t", "networks n", "policies p", "endpointgroups g"} {
		l.said(o, "waits=false")
	}
}

// TestUsersObjectsStayTheirs: what users made stays theirs, whatever comes of the object; two
// objects for one thing: the first has it, and the second gets it when that goes.
func TestUsersObjectsStayTheirs(t *testing.T) {
	l := newObjectsLab(t, memory.New())
	l.start(l.ctrl.Run)
	l.start(l.objects.Run)
	l.lead(l.leader())
	l.tenant("users")
	l.add(objects.Tenants, "users", `{}`)
	l.said("tenants users", "False NotOwned user waits=false", "contiv.io/adopt")
	l.of[objects.Tenants].Delete(l.object(objects.Tenants, "users", `{}`))
	l.add(objects.Tenants, "first", `{"tenantName":"x"}`)
	l.said("tenants first", applied)
	l.add(objects.Tenants, "second", `{"tenantName":"x"}`, adopting)
	l.said("tenants second", "False NotOwned kubernetes waits=false", "belongs to tenants.contiv.io/first")
	l.until("the users' tenant", func(v *control.View) bool { x, there := v.Tenants.Get("users"); return there && x.Object == "" })
	l.modify(objects.Tenants, "first", `{"tenantName":"x"}`, going)
	l.said("tenants first", "waits=false")
	l.of[objects.Tenants].Delete(l.object(objects.Tenants, "first", `{}`))
	l.said("tenants second", applied)
	l.add(objects.Tenants, "users", `{}`, adopting)
	l.said("tenants users", applied)
	l.add(objects.Tenants, "default", `{}`, adopting)
	l.said("tenants default", applied)
	l.modify(objects.Tenants, "default", `{}`, going)
	l.said("tenants default", "waits=false")
	l.until("the default tenant stays", func(v *control.View) bool { x, there := v.Tenants.Get("default"); return there && x.Object == "" })
	if _, err := l.ctrl.Ownership.Release(context.Background(), control.Admin(), model.Owned{Kind: "tenant", Key: "x"}); err != nil {
		t.Fatal(err)
	}
	l.said("tenants second", applied) // it adopts
}

// TestAdoptedObjectsReportDifferences: an object that takes over what users made, and differs in what
// cannot change, says in what.
func TestAdoptedObjectsReportDifferences(t *testing.T) {
	l := newObjectsLab(t, memory.New())
	l.start(l.ctrl.Run)
	l.start(l.objects.Run)
	l.lead(l.leader())
	l.tenant("users")
	valid, err := model.Check(model.Network{Key: model.NetworkKey{Tenant: "users", Name: "n"}, Type: model.NetworkData, Encap: model.EncapVXLAN, ReqTag: 7, Subnet: netip.MustParsePrefix("10.1.0.0/16")})
	if err == nil {
		_, err = l.ctrl.Put(context.Background(), control.Admin(), l.ctrl.Networks.ChangeNetwork(valid))
	}
	if err != nil {
		t.Fatal(err)
	}
	l.add(objects.Networks, "n", `{"tenantName":"users","encap":"vxlan","subnet":"10.2.0.0/16"}`, adopting)
	l.said("networks n", "False Refused user waits=false", "not taken over", "10.1.0.0/16")
	l.of[objects.Networks].Delete(l.object(objects.Networks, "n", `{}`))
	l.add(objects.Networks, "n", `{"tenantName":"users","encap":"vxlan","subnet":"10.1.0.0/16"}`, adopting) // any pktTag
	l.said("networks n", applied)
}

// TestFinalizersGoWithTheirObjects: an object whose end has come is let go by the look that takes away
// what it stood for, and not by the next one.
func TestFinalizersGoWithTheirObjects(t *testing.T) {
	l := newObjectsLab(t, memory.New())
	l.objects.config.Every = time.Hour
	l.start(l.ctrl.Run)
	l.start(l.objects.Run)
	l.lead(l.leader())
	l.tenant("t")
	const spec = `{"tenantName":"t"}`
	for range 20 {
		l.add(objects.NetProfiles, "np", spec)
		l.said("netprofiles np", applied)
		l.modify(objects.NetProfiles, "np", spec, going)
		l.said("netprofiles np", "waits=false")
		l.of[objects.NetProfiles].Delete(l.object(objects.NetProfiles, "np", spec))
	}
}

// TestMissingResourceTakesNothingAway: an API server that has the resource no more takes nothing away.
func TestMissingResourceTakesNothingAway(t *testing.T) {
	l := newObjectsLab(t, memory.New())
	l.start(l.ctrl.Run)
	stopRun := l.start(l.objects.Run)
	stop := l.lead(l.leader())
	l.add(objects.Tenants, "t", `{}`)
	l.said("tenants t", applied)
	_, _ = stop(), stopRun()
	next := newObjectsLab(t, l.st)
	next.of[objects.Tenants].gone = true
	next.start(next.ctrl.Run)
	next.start(next.objects.Run)
	if _, err := l.st.Update(context.Background(), func(tx store.Tx) error { tx.Delete("/test/leader"); return nil }); err != nil {
		t.Fatal(err)
	}
	next.lead(next.leader())
	next.add(objects.NetProfiles, "np", `{"tenantName":"t"}`) // of another kind, which is served
	next.said("netprofiles np", applied)
	next.owned(2)
	next.of[objects.NetProfiles].Delete(next.object(objects.NetProfiles, "np", `{}`))
	next.owned(1)
}

// TestReplacedLeaderWritesNoObjects: who leads no more writes nothing.
func TestReplacedLeaderWritesNoObjects(t *testing.T) {
	l := newObjectsLab(t, memory.New())
	l.start(l.ctrl.Run)
	l.start(l.objects.Run)
	fence := l.leader()
	if _, err := l.st.Update(context.Background(), func(tx store.Tx) error { tx.Delete("/test/leader"); return nil }); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	l.add(objects.Tenants, "t", `{}`)
	l.start(func(ctx context.Context) error { err := l.objects.Lead(ctx, fence); done <- err; return err })
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), store.ErrFenced.Error()) {
			t.Errorf("Lead: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it still leads")
	}
	l.owned(0)
}
