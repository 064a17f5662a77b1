package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
)

// paused is a source whose watch has said its last word.
type paused struct{ mirror.Source }

func (paused) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

func (l *lab) make(change func() error) {
	l.t.Helper()
	if err := change(); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) makeEndpoint(e model.Endpoint) {
	l.t.Helper()
	l.make(func() error {
		valid, err := model.Check(e)
		if err == nil {
			_, _, err = l.ctrl.Endpoints.CreateEndpoint(context.Background(), control.Admin(), valid)
		}
		return err
	})
}

// worlds makes the default network, and another one with a group.
func (l *lab) worlds() {
	l.t.Helper()
	for name, subnet := range map[model.NetworkName]string{"default-net": "10.1.0.0/24", "other": "10.2.0.0/24"} {
		l.make(func() error {
			n, err := model.Check(model.Network{Key: model.NetworkKey{Tenant: model.DefaultTenant, Name: name}, Type: model.NetworkData, Encap: model.EncapVXLAN, Subnet: netip.MustParsePrefix(subnet)})
			if err == nil {
				_, err = l.ctrl.Put(context.Background(), control.Admin(), l.ctrl.Networks.ChangeNetwork(n))
			}
			return err
		})
	}
	l.group("web", "default-net")
}

func (l *lab) group(name model.GroupName, network model.NetworkName) {
	l.t.Helper()
	l.make(func() error {
		g, err := model.Check(model.Group{Key: model.GroupKey{Tenant: model.DefaultTenant, Name: name}, Network: network})
		if err == nil {
			_, err = l.ctrl.Put(context.Background(), control.Admin(), l.ctrl.Tenants.ChangeGroup(g, false))
		}
		return err
	})
}

func podNamed(uid string, labels map[string]string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta("a", "one", labels)}
	p.UID = types.UID(uid)
	p.Spec.Containers = []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}
	return p
}

// again deletes the pod a/one, and makes another one.
func (l *lab) again(uid string, now *corev1.Pod) {
	l.sources[mirror.Pods].Delete(podNamed(uid, nil))
	l.sources[mirror.Pods].Add(now)
}

// asks returns what the pod a/one is to have, within a time.
func (l *lab) asks(uid string, within time.Duration) (model.Endpoint, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return l.syncer.Endpoint(ctx, "a", "one", uid)
}

// unavailable fails unless a pod must wait and the error says for what.
func (l *lab) unavailable(uid string, within time.Duration, why string) {
	l.t.Helper()
	if _, err := l.asks(uid, within); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), why) {
		l.t.Errorf("%v, want that it is unavailable, with %q", err, why)
	}
}

func text(e model.Endpoint) string {
	return fmt.Sprint(e.Key.Network, " ", e.Group, " ", e.Namespace, " ", e.Pod.Name, " ", e.Pod.UID, " ", e.Labels, " ", e.Ports)
}

// TestPodsWaitForTheStore: a pod has no endpoint before the store has what there is, whether the
// syncer or the watch of any kind is behind; the next of its name is another one.
func TestPodsWaitForTheStore(t *testing.T) {
	for _, kind := range []string{mirror.Pods, mirror.Namespaces, mirror.NetworkPolicies, mirror.ClusterNetworkPolicies} {
		t.Run(kind, func(t *testing.T) {
			l := newLab(t, func(c *Config) { c.Sources[kind] = paused{c.Sources[kind]} })
			l.start(l.ctrl.Run)
			l.worlds()
			l.sources[mirror.Namespaces].Add(namespace("a", nil))
			l.sources[mirror.Namespaces].Add(namespace("b", nil))
			l.sources[mirror.NetworkPolicies].Add(isolate("a", "p"))
			l.sources[mirror.Pods].Add(podNamed("u1", map[string]string{"app": "web"}))
			l.start(l.syncer.Run)
			if err := l.syncer.mirror.AwaitLists(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.unavailable("u1", 300*time.Millisecond, "behind with namespaces") // there is no leader
			fence := l.leader()
			l.start(func(ctx context.Context) error { return l.syncer.Lead(ctx, fence) })
			e, err := l.asks("u1", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := text(e), "default:default-net  a one u1 map[app:web] [{http tcp 8080}]"; got != want {
				t.Errorf("the endpoint is %s, want %s", got, want)
			}
			if named, err := l.asks("", time.Minute); err != nil || text(named) != text(e) {
				t.Errorf("by its name the endpoint is %s (%v), want %s", text(named), err, text(e))
			}
			l.unavailable("u2", 5*time.Second, "no such pod with UID u2")

			switch kind { // something that the watch does not tell
			case mirror.Pods:
				l.again("u1", podNamed("u2", nil))
			case mirror.Namespaces:
				l.sources[kind].Modify(namespace("b", map[string]string{"x": "y"}))
			case mirror.NetworkPolicies:
				l.sources[kind].Modify(isolate("a", "p", open))
			case mirror.ClusterNetworkPolicies:
				l.sources[kind].Add(&policyv1beta1.ClusterNetworkPolicy{ObjectMeta: meta("", "all", nil)})
			}
			uid := "u3"
			if kind == mirror.Pods {
				uid = "u2"
			} else {
				l.again("u1", podNamed(uid, nil))
			}
			l.unavailable(uid, time.Second, "behind with "+kind)
			l.unavailable("", time.Second, "behind with "+kind) // the former one of the name may not stand for it
		})
	}
}

// TestLabelsChooseThePodsPlace: labels choose a pod's tenant, network and group; a forbidden choice is
// reported.
func TestLabelsChooseThePodsPlace(t *testing.T) {
	l := newLab(t, nil)
	l.start(l.ctrl.Run)
	l.worlds()
	l.keeps()
	l.sources[mirror.Namespaces].Add(namespace("a", map[string]string{"io.contiv.net-group": "web"}))
	l.sources[mirror.Pods].Add(podNamed("u1", nil))
	e, err := l.asks("u1", time.Minute)
	if err != nil || e.Group != "web" {
		t.Errorf("%s, %v, want the namespace's group", text(e), err)
	}
	l.again("u1", podNamed("u2", map[string]string{"io.contiv.network": "none"}))
	if _, err := l.asks("u2", time.Minute); !errors.Is(err, model.ErrInvalid) || !strings.Contains(err.Error(), "there are default-net, other") {
		t.Errorf("a network that does not exist: %v", err)
	}
	l.wantReport("metadata.labels[io.contiv.network]")
}

// TestPodsChooseAllowedGroupsOnly: of the groups that pods may choose one is taken; of others the pod is
// told which these are, waits if it is new, and else stays where it is.
func TestPodsChooseAllowedGroupsOnly(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Choices.Groups = []model.GroupName{"web"} })
	l.start(l.ctrl.Run)
	l.worlds()
	l.group("db", "default-net")
	l.keeps()
	l.sources[mirror.Namespaces].Add(namespace("a", nil))
	in := func(group string) *corev1.Pod {
		return podNamed("u1", map[string]string{"io.contiv.net-group": group, "app": "of-" + group})
	}
	l.sources[mirror.Pods].Add(in("db"))
	const why = "label io.contiv.net-group=db of the pod: pods may choose only web"
	if _, err := l.asks("u1", time.Minute); !errors.Is(err, model.ErrInvalid) || !strings.Contains(err.Error(), why) {
		t.Errorf("a group that pods may not choose: %v", err)
	}
	l.wantReport("metadata.labels[io.contiv.net-group]: " + why)
	if err := l.syncer.CheckGroup("a", "db"); !errors.Is(err, model.ErrInvalid) || !strings.Contains(err.Error(), `group "db": pods may choose only web`) {
		t.Errorf("a further interface in that group: %v", err)
	}
	if err := l.syncer.CheckGroup("a", "web"); err != nil {
		t.Errorf("a further interface in a group that pods may choose: %v", err)
	}
	if err := l.syncer.CheckGroup("b", "web"); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("a further interface in a namespace that is not there: %v", err)
	}
	l.sources[mirror.Pods].Modify(in("web"))
	var e model.Endpoint
	for end := time.Now().Add(time.Minute); e.Group != "web" && time.Now().Before(end); {
		e, _ = l.asks("u1", time.Minute)
	}
	e.Key.ID = "e1"
	l.makeEndpoint(e)
	l.sources[mirror.Pods].Modify(in("db"))
	for end := time.Now().Add(time.Minute); ; <-time.After(2 * time.Millisecond) {
		v, err := l.ctrl.View(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		got, _ := v.Endpoints.Get(e.Key)
		if got.Labels["app"] == "of-db" && got.Group == "web" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the endpoint is %s, want its new labels in its old group", text(got))
		}
	}
}

func (l *lab) wantReport(what string) {
	l.t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		l.mu.Lock()
		told := strings.Join(l.reported, "\n")
		l.mu.Unlock()
		if strings.Contains(told, what) {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("told %s, want %q", told, what)
		}
	}
}

// TestEndpointsFollowTheirPods: an endpoint follows its pod's labels and group, also if they changed
// while there was no leader, or before the endpoint existed. It does not follow the pod's
// tenant and network, nor another pod of the same name.
func TestEndpointsFollowTheirPods(t *testing.T) {
	l := newLab(t, nil)
	l.start(l.ctrl.Run)
	l.worlds()
	l.group("db", "default-net")
	l.group("far", "other")
	l.start(l.syncer.Run)
	fence := l.leader()
	lead := func() func() error {
		return l.start(func(ctx context.Context) error { return l.syncer.Lead(ctx, fence) })
	}
	stop := lead()
	l.sources[mirror.Namespaces].Add(namespace("a", nil))
	l.sources[mirror.Pods].Add(podNamed("u1", map[string]string{"app": "web", "io.contiv.net-group": "web"}))
	want, err := l.asks("u1", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	l.sources[mirror.Pods].Modify(podNamed("u1", map[string]string{"app": "new", "io.contiv.net-group": "web"}))
	want.Key.ID = "e1"
	l.makeEndpoint(want) // by what it was
	is := func(group, labels string) {
		t.Helper()
		var got string
		for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(2 * time.Millisecond) {
			v, err := l.ctrl.View(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			e, _ := v.Endpoints.Get(want.Key)
			if got = fmt.Sprint(e.Group, " ", e.Labels); got == group+" "+labels {
				return
			}
		}
		t.Fatalf("the endpoint has %s, want %s %s", got, group, labels)
	}
	is("web", "map[app:new io.contiv.net-group:web]")
	change := func(uid string, labels map[string]string) { l.sources[mirror.Pods].Modify(podNamed(uid, labels)) }
	change("u1", map[string]string{"io.contiv.net-group": "db"})
	is("db", "map[io.contiv.net-group:db]")
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	change("u1", map[string]string{"io.contiv.net-group": "web", "x": "y"})
	lead()
	is("web", "map[io.contiv.net-group:web x:y]")

	change("u1", map[string]string{"io.contiv.network": "other", "app": "a"})
	is("web", "map[app:a io.contiv.network:other]")
	l.wantReport("a pod stays on its network, default:default-net")
	change("u1", map[string]string{"io.contiv.net-group": "far", "app": "b"})
	is("web", "map[app:b io.contiv.net-group:far]")
	l.wantReport("it stays in its group")
	change("u1", nil)
	is("", "map[]")

	l.again("u1", podNamed("u2", map[string]string{"app": "second"}))
	change("u2", map[string]string{"app": "third"})
	if _, err := l.asks("u2", time.Minute); err != nil { // the mirror has it
		t.Fatal(err)
	}
	is("", "map[]")
	if s := l.syncer.State(); s.Orphans != 1 {
		t.Errorf("%d strays, want the endpoint of the pod that is gone", s.Orphans)
	}
}

// TestAnnotationsRequestAddresses: annotations ask for addresses. An invalid one is refused and
// reported, and a change while the pod lives is reported.
func TestAnnotationsRequestAddresses(t *testing.T) {
	l := newLab(t, nil)
	l.start(l.ctrl.Run)
	l.worlds()
	l.keeps()
	l.sources[mirror.Namespaces].Add(namespace("a", nil))
	asking := func(uid, address string) *corev1.Pod {
		p := podNamed(uid, nil)
		p.Annotations = map[string]string{"contiv.io/ipv4": address}
		return p
	}
	l.sources[mirror.Pods].Add(asking("u1", "ten"))
	if _, err := l.asks("u1", time.Minute); !errors.Is(err, model.ErrInvalid) || !strings.Contains(err.Error(), `"ten": must be an IPv4 address`) {
		t.Errorf("an address that is none: %v", err)
	}
	l.wantReport("metadata.annotations[contiv.io/ipv4]: \"ten\": must be an IPv4 address")
	l.again("u1", asking("u2", "10.1.0.7"))
	e, err := l.asks("u2", time.Minute)
	if err != nil || e.IPv4.String() != "10.1.0.7" || !e.Pod.KeepIPv4 || e.Pod.KeepIPv6 {
		t.Fatalf("%s %v %v", text(e), e.IPv4, err)
	}
	l.syncer.ReportRefused("a", "one", "u2", errors.New("10.1.0.7 is used by another"))
	l.wantReport("metadata.annotations: 10.1.0.7 is used by another: name a free address of its network in contiv.io/ipv4 or contiv.io/ipv6, then delete the pod")
	e.Key.ID = "e1"
	l.makeEndpoint(e)
	l.sources[mirror.Pods].Modify(asking("u2", "10.1.0.8"))
	l.wantReport("it requests 10.1.0.8 now: a pod keeps its address, 10.1.0.7, until it is created again")
}

// TestAnnotationsLimitThePod: annotations limit a pod's endpoint and are followed while the pod lives;
// what cannot be understood is refused of a new pod, and lifts no limit of one that lives.
func TestAnnotationsLimitThePod(t *testing.T) {
	l := newLab(t, nil)
	l.start(l.ctrl.Run)
	l.worlds()
	l.keeps()
	l.sources[mirror.Namespaces].Add(namespace("a", nil))
	asking := func(uid string, in, out string) *corev1.Pod {
		p := podNamed(uid, nil)
		p.Annotations = map[string]string{}
		for name, v := range map[string]string{"kubernetes.io/ingress-bandwidth": in, "kubernetes.io/egress-bandwidth": out} {
			if v != "" {
				p.Annotations[name] = v
			}
		}
		return p
	}
	l.sources[mirror.Pods].Add(asking("u1", "fast", ""))
	if _, err := l.asks("u1", time.Minute); !errors.Is(err, model.ErrInvalid) || !strings.Contains(err.Error(), `"fast": must be a number of bits a second`) {
		t.Errorf("a rate that is none: %v", err)
	}
	l.wantReport(`metadata.annotations[kubernetes.io/ingress-bandwidth]: "fast": must be a number of bits a second`)
	l.again("u1", asking("u2", "1M", "2M"))
	e, err := l.asks("u2", time.Minute)
	if want := (model.Rates{Receive: model.Rate{Bits: 1_000_000}, Send: model.Rate{Bits: 2_000_000}}); err != nil || e.Rates != want {
		t.Fatalf("%+v %v, want %+v", e.Rates, err, want)
	}
	e.Key.ID = "e1"
	l.makeEndpoint(e)
	is := func(receive, send uint64) {
		t.Helper()
		var got model.Rates
		for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(2 * time.Millisecond) {
			v, err := l.ctrl.View(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			e, _ := v.Endpoints.Get(e.Key)
			if got = e.Rates; got.Receive.Bits == receive && got.Send.Bits == send {
				return
			}
		}
		t.Fatalf("the endpoint has %+v, want %d and %d", got, receive, send)
	}
	is(1_000_000, 2_000_000)
	l.sources[mirror.Pods].Modify(asking("u2", "3M", ""))
	is(3_000_000, 0)
	l.sources[mirror.Pods].Modify(asking("u2", "slow", "1M"))
	l.wantReport(`metadata.annotations[kubernetes.io/ingress-bandwidth]: "slow"`)
	is(3_000_000, 0)
	l.sources[mirror.Pods].Modify(asking("u2", "", ""))
	is(0, 0)
}
