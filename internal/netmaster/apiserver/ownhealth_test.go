package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
)

type noticing struct {
	testCluster
	distrusted bool
}

func (c noticing) Health(ctx context.Context) api.Health {
	h := c.testCluster.Health(ctx)
	condition.MasterKubernetes.Add(&h, errors.New("pods are not known"))
	condition.MasterHostsAuthority.Add(&h, nil)
	condition.MasterSameStore.Add(&h, errors.New("it was empty"))
	if c.distrusted {
		condition.MasterClientsTrust.Add(&h, errors.New("10.0.0.1 refuses"))
	}
	return h
}

// TestStatusHasItsNetmastersNotices: the status has the answering netmaster's notices, except the ones that it
// has in other words, and may be well in spite of them.
func TestStatusHasItsNetmastersNotices(t *testing.T) {
	f := serveWith(t, func(c *Config) {
		c.Address, c.Cluster = "10.0.0.9:9999", noticing{testCluster: c.Cluster.(testCluster)}
	})
	var s api.ClusterStatus
	if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/status", "")), &s); err != nil {
		t.Fatal(err)
	}
	if want := []string{"netmaster 10.0.0.9:9999: kubernetes: pods are not known; " + condition.MasterKubernetes.Remedy()}; !slices.Equal(s.Notices, want) || !s.Well {
		t.Errorf("the notices are %q, well %t: want %q", s.Notices, s.Well, want)
	}
}

// TestRefusedNetmasterCertificateIsReported: a netmaster that has no host, and whose certificate clients refuse
// again and again, is not well: they are hosts of the cluster that was there before.
func TestRefusedNetmasterCertificateIsReported(t *testing.T) {
	f := serveWith(t, func(c *Config) {
		c.Address, c.Cluster = "10.0.0.9:9999", noticing{c.Cluster.(testCluster), true}
	})
	const says = "netmaster 10.0.0.9:9999: clients-trust: 10.0.0.1 refuses"
	var s api.ClusterStatus
	if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/status", "")), &s); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Wrong, []string{says + "; " + condition.MasterClientsTrust.Remedy()}) || s.Well {
		t.Errorf("wrong is %q, well %t", s.Wrong, s.Well)
	}
	var d api.Diagnosis
	if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/doctor", "")), &d); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(d.Findings, func(f api.Finding) bool { return f.Text == "clients-trust: 10.0.0.1 refuses" }) {
		t.Errorf("the doctor finds %+v", d.Findings)
	}
}

// spaceless is a cluster whose netmaster cannot write to the store, or has no settings there.
type spaceless struct {
	testCluster
	alarms []string
}

func (c spaceless) Health(ctx context.Context) api.Health {
	h := c.testCluster.Health(ctx)
	condition.MasterSpace.Add(&h, errors.New("it takes no writes"))
	condition.MasterSettings.Add(&h, errors.New("it has no settings"))
	return h
}

func (c spaceless) Stores(context.Context) []api.StoreServer {
	return []api.StoreServer{{Address: "e1", Alarms: c.alarms}}
}

// TestNetmasterIsNotReady: what makes the answering netmaster not ready is wrong with the
// cluster, once, whatever the store's servers say.
func TestNetmasterIsNotReady(t *testing.T) {
	for alarm, want := range map[string]string{"": "space: it takes no writes", "full": "store e1 has raised an alarm: full"} {
		f := serveWith(t, func(c *Config) { c.Cluster = spaceless{c.Cluster.(testCluster), strings.Fields(alarm)} })
		s, err := f.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wrong := strings.Join(s.Wrong, "\n")
		if s.Well || !strings.Contains(wrong, want) || !strings.Contains(wrong, "settings: it has no settings") || strings.Contains(wrong, "space: it takes") != (alarm == "") {
			t.Errorf("with alarm %q: %s", alarm, wrong)
		}
	}
}

// fullDisk is a cluster whose netmaster has a full disk.
type fullDisk struct{ testCluster }

func (c fullDisk) Health(ctx context.Context) api.Health {
	h := c.testCluster.Health(ctx)
	condition.MasterDisk.Add(&h, errors.New("it is full"))
	return h
}

// TestFindingsAreCountedByObject: a host's disk is not a netmaster's, though both conditions
// have the name disk.
func TestFindingsAreCountedByObject(t *testing.T) {
	f := serveWith(t, func(c *Config) { c.Cluster = fullDisk{c.Cluster.(testCluster)} })
	metrics := f.must("GET", "/metrics", "")
	for _, want := range []string{
		`contiv_cluster_findings{condition="disk",object="netmaster",severity="warning"} 1`,
		`contiv_cluster_findings{condition="disk",object="host",severity="error"} 0`,
		`contiv_cluster_findings{condition="store",object="host",severity="error"} 0`,
		`contiv_cluster_findings{condition="store",object="netmaster",severity="error"} 0`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}
