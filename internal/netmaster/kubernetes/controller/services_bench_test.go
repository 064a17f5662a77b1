package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	served "k8s.io/client-go/tools/cache/testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// BenchmarkServices is how long a leader needs for what one endpoint's change writes,
// beside few services and many, of ten endpoints each, with a store in memory; also how
// long for all at first, and what room the objects, read from the wire, take.
func BenchmarkServices(b *testing.B) {
	for _, n := range []int{10, 5000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { benchServices(b, n) })
	}
}

func benchServices(b *testing.B, n int) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	st := memory.New()
	ctrl := control.New(st, control.Options{})
	go func() { _ = ctrl.Run(ctx) }() // it ends with ctx
	c := ServicesConfig{Control: ctrl, Sources: map[string]mirror.Source{}, Tell: func(Report) {}}
	sources := map[string]*source{}
	for _, kind := range serviceOrder {
		sources[kind] = &source{FakeControllerSource: served.NewFakeControllerSource()}
		c.Sources[kind] = sources[kind]
	}
	before := live()
	for i := range n {
		s, x := benchService(b, i)
		sources[mirror.Services].Add(s)
		sources[mirror.EndpointSlices].Add(x)
	}
	room := live() - before
	services := NewServices(c)
	go func() { _ = services.Run(ctx) }() // likewise
	rev, err := st.Update(ctx, func(tx store.Tx) error { return tx.Create("/test/leader", []byte("x"), nil) })
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	go func() { _ = services.Lead(ctx, store.Fence{Key: "/test/leader", Create: rev}) }() // likewise
	until := func(holds func(v *control.View) bool) {
		for {
			if v, err := ctrl.View(ctx); err != nil {
				b.Fatal(err)
			} else if holds(v) {
				return
			}
			runtime.Gosched()
		}
	}
	until(func(v *control.View) bool {
		return len(v.Kubernetes.ClusterServices()) == n && len(v.Kubernetes.ServiceSlices()) == n
	})
	first := time.Since(began)
	rows := roomOfRows(b, ctrl.Current())
	_, slice := benchService(b, 0)
	key := model.ServiceSliceKey{Namespace: "ns0", Name: slice.Name}
	turn := 0
	for b.Loop() {
		turn++
		x := slice.DeepCopy()
		x.Endpoints = x.Endpoints[:len(x.Endpoints)-turn%2]
		sources[mirror.EndpointSlices].Modify(x)
		until(func(v *control.View) bool {
			row, ok := v.Kubernetes.ServiceSlice(key)
			return ok && len(row.Backends) == len(x.Endpoints)
		})
	}
	b.ReportMetric(first.Seconds(), "s-at-first")
	b.ReportMetric(float64(room)/float64(n), "B/service")
	b.ReportMetric(float64(rows)/float64(n), "B/service-in-rows")
}

// roomOfRows is what the rows of services take where they were read from a store: in
// each netmaster and on each host.
func roomOfRows(b *testing.B, v *control.View) uint64 {
	b.Helper()
	before := live()
	services, slices := copied(b, v.Kubernetes.ClusterServices()), copied(b, v.Kubernetes.ServiceSlices())
	room := live() - before
	runtime.KeepAlive(services)
	runtime.KeepAlive(slices)
	return room
}

func copied[T any](b *testing.B, rows []T) (out []T) {
	b.Helper()
	for _, row := range rows {
		raw, err := json.Marshal(row)
		var c T
		if err == nil {
			err = json.Unmarshal(raw, &c)
		}
		if err != nil {
			b.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// benchService is a service with a slice of ten pods, as they come from the wire.
func benchService(b *testing.B, n int) (*corev1.Service, *discoveryv1.EndpointSlice) {
	b.Helper()
	name := fmt.Sprint("service-", n)
	meta := metav1.ObjectMeta{Namespace: fmt.Sprint("ns", n%50), Name: name, UID: types.UID(fmt.Sprintf("8f6d2c1a-0000-4000-8000-%012d", n)), Labels: map[string]string{"app": name}}
	s := &corev1.Service{ObjectMeta: meta}
	s.Spec.Type, s.Spec.ClusterIPs = corev1.ServiceTypeClusterIP, []string{netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}).String()}
	s.Spec.Selector, s.Spec.Ports = map[string]string{"app": name}, []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "metrics", Port: 9090}}
	meta.Name += "-x7k2p"
	meta.Labels = map[string]string{"app": name, discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
	x := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4}
	ports := [2]int32{8080, 9090}
	for i, port := range []string{"http", "metrics"} {
		x.Ports = append(x.Ports, discoveryv1.EndpointPort{Name: &port, Port: &ports[i]})
	}
	yes, no := true, false
	for i := range 10 {
		node, zone := fmt.Sprint("node-", i), fmt.Sprint("zone-", i%3)
		x.Endpoints = append(x.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{netip.AddrFrom4([4]byte{10, 128, byte(n), byte(n>>8<<4 + i)}).String()}, NodeName: &node, Zone: &zone,
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: meta.Namespace, Name: fmt.Sprint(name, i), UID: types.UID(fmt.Sprintf("8f6d2c1a-0001-4000-8000-%012d", 10*n+i))},
		})
	}
	gotS, gotX := &corev1.Service{}, &discoveryv1.EndpointSlice{}
	for from, to := range map[interface{ Marshal() ([]byte, error) }]interface{ Unmarshal([]byte) error }{s: gotS, x: gotX} {
		raw, err := from.Marshal()
		if err == nil {
			err = to.Unmarshal(raw)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	mirror.Trim(gotS)
	mirror.Trim(gotX)
	return gotS, gotX
}
