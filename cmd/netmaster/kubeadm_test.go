package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// apiServer answers for kubeadm's ConfigMap and for nodes.
type apiServer struct {
	config int // the status of the ConfigMap
	text   string
	slice  string // of the only node
}

func (s apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/api/v1/namespaces/kube-system/configmaps/kubeadm-config" && s.config == http.StatusOK:
		fmt.Fprintf(w, `{"kind":"ConfigMap","apiVersion":"v1","data":{"ClusterConfiguration":%s}}`, strconv.Quote(s.text))
	case r.URL.Path == "/api/v1/nodes":
		fmt.Fprintf(w, `{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"n1"},"spec":{"podCIDR":%q}}]}`, s.slice)
	default:
		w.WriteHeader(s.config)
		reason := map[int]string{http.StatusNotFound: "NotFound", http.StatusForbidden: "Forbidden"}[s.config]
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"`+reason+`","code":`+strconv.Itoa(s.config)+`}`)
	}
}

// TestPodNetworkIsMadeOfKubeadmsCIDR: the network for pods is made of kubeadm's pod CIDR where no flag names a
// network and none exists. Where the CIDR is not known, the message names the flag, and a
// node's slice as a hint only.
func TestPodNetworkIsMadeOfKubeadmsCIDR(t *testing.T) {
	const networking = "networking:\n  podSubnet: 10.244.0.0/16,fd00:10:244::/56\n  serviceSubnet: 10.96.0.0/12\n"
	for _, x := range []struct {
		name    string
		server  apiServer
		options options
		there   string // the network's subnet, before
		want    string // and after
		notice  string // "" = none
		fails   string
	}{
		{"made", apiServer{config: 200, text: networking}, options{}, "", "10.244.0.0/16 fd00:10:244::/56 true", "", ""},
		{"there", apiServer{config: 200, text: networking}, options{}, "10.1.0.0/16", "10.1.0.0/16 invalid Prefix false", "", ""},
		{"a flag says it", apiServer{config: 200, text: networking}, options{podSubnets: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}, "", "", "", ""},
		{"none is wanted", apiServer{config: 200, text: networking}, options{noPods: true}, "", "", "", ""},
		{"no configuration", apiServer{config: 404}, options{}, "", "", "is not there: give --pod-cidr", "give --pod-cidr"},
		{"no configuration, and it is there", apiServer{config: 404}, options{}, "10.1.0.0/16", "10.1.0.0/16 invalid Prefix false", "", ""},
		{"may not be read", apiServer{config: 403, slice: "10.244.3.0/24"}, options{}, "", "", "may not be read, with the rights of an earlier manifest (node n1 has 10.244.3.0/24 of the pod CIDR): give --pod-cidr", "--pod-cidr"},
		{"no pod CIDR", apiServer{config: 200, text: "networking: {}\n", slice: "10.244.3.0/24"}, options{}, "", "", "names no pod CIDR (node n1 has 10.244.3.0/24 of the pod CIDR): give --pod-cidr", "--pod-cidr"},
		{"not to be read", apiServer{config: 200, text: "networking: {podSubnet: all}\n"}, options{}, "", "", "", `"all" is not a subnet`},
		{"it answers with an error", apiServer{config: 500}, options{}, "", "", "", "ConfigMap kube-system/kubeadm-config: "},
		{"its services' addresses overlap", apiServer{config: 200, text: "networking: {podSubnet: 10.0.0.0/8, serviceSubnet: 10.96.0.0/12}\n"}, options{}, "", "", "overlaps 10.96.0.0/12", "overlaps 10.96.0.0/12"},
	} {
		t.Run(x.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			st := memory.New()
			ctrl := control.New(st, control.Options{})
			running.Go(func() { _ = ctrl.Run(ctx) }) // it ends with ctx
			if x.there != "" {
				n, err := model.Check(model.Network{Key: control.PodNetwork, Type: model.NetworkData, Encap: model.EncapVXLAN, Subnet: netip.MustParsePrefix(x.there)})
				if err == nil {
					_, err = ctrl.Put(ctx, control.Admin(), ctrl.Networks.ChangeNetwork(n))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if strings.Contains(x.fails, "overlaps") { // as the leader keeps them
				if _, err := st.Client().Update(ctx, func(tx store.Tx) error {
					return tables.ServiceRanges.Put(tx, model.ServiceRanges{Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}})
				}); err != nil {
					t.Fatal(err)
				}
			}
			server := httptest.NewServer(x.server)
			defer server.Close()
			ranges := "unknown"
			k, err := newKubeadm(&rest.Config{Host: server.URL}, x.options, ctrl, func(context.Context) error { return nil }, func(all []netip.Prefix) { ranges = fmt.Sprint(all) }, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if err := k.once(ctx); (err == nil) != (x.fails == "") || err != nil && !strings.Contains(err.Error(), x.fails) {
				t.Errorf("error %v, want %q", err, x.fails)
			}
			wantRanges := map[int]string{200: "[10.96.0.0/12]", 404: "[]"}[x.server.config]
			if x.server.text == "networking: {}\n" {
				wantRanges = "[]"
			} else if wantRanges == "" || strings.Contains(x.fails, "not a subnet") {
				wantRanges = "unknown"
			}
			if ranges != wantRanges {
				t.Errorf("the ranges of services' addresses are %s, want %s", ranges, wantRanges)
			}
			var h api.Health
			k.check(&h)
			said := "" // k enters one condition at most
			for _, c := range h.Conditions {
				said = c.Message
			}
			if (said == "") != (x.notice == "") || !strings.Contains(said, x.notice) {
				t.Errorf("the notice says %q, want %q", said, x.notice)
			}
			v, err := ctrl.View(ctx)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if n, ok := v.Networks.Get(control.PodNetwork); ok {
				got = fmt.Sprint(n.Subnet, " ", n.Subnet6, " ", n.Routed)
			}
			if got != x.want {
				t.Errorf("the network is %q, want %q", got, x.want)
			}
		})
	}
}
