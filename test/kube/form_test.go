//go:build integration

package kube

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/serviceaccount"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// podMaster is a netmaster of a control plane's node, as the chart starts it, but as a process.
type podMaster struct {
	t         *testing.T
	program   string
	args      []string
	data, api string
	cmd       *exec.Cmd
	log       *logBuffer
}

// logBuffer is what a process writes while the test reads it.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (p *podMaster) start() {
	p.t.Helper()
	p.log = &logBuffer{}
	p.cmd = exec.CommandContext(context.WithoutCancel(p.t.Context()), p.program, p.args...)
	p.cmd.Stderr = p.log
	must(p.t, p.cmd.Start())
}

// kill ends the process as a node that is lost does, and empties its disk.
func (p *podMaster) kill(emptied bool) {
	p.t.Helper()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended; Wait tells
	_ = p.cmd.Wait()
	p.cmd = nil
	if emptied {
		must(p.t, os.RemoveAll(p.data))
	}
}

// members are the voters' names as this netmaster tells them, with the certificate of its
// administrator.
func (p *podMaster) members() (names []string) {
	admin, err := transport.OpenDirectory(membership.AdminDir(p.data))
	if err != nil {
		return nil
	}
	client, err := api.NewClient("https://"+p.api, api.WithTLS(admin.Client(pki.Netmaster)))
	if err != nil {
		return nil
	}
	defer client.Close()
	all, err := client.Members(p.t.Context())
	if err != nil {
		return nil
	}
	for _, m := range all.Members {
		if m.Role == string(membership.Voter) && m.Error == "" {
			names = append(names, m.Name)
		}
	}
	return names
}

// authority is the fingerprint of the members' authority that its directory has.
func (p *podMaster) authority() string {
	text, _ := os.ReadFile(membership.MembersBundle(p.data))
	return certificateOf(text)
}

func certificateOf(text []byte) string {
	block, _ := pem.Decode(text)
	if block == nil {
		return ""
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%x", c.SerialNumber)
}

// podMasters makes three nodes with a pod of netmaster's service account each, and the
// objects that the chart makes.
func podMasters(t *testing.T, client *kubernetes.Clientset, config *rest.Config) (all []*podMaster) {
	t.Helper()
	const ns = "kube-system"
	ctx := t.Context()
	allow(t, config)
	ok[*corev1.ServiceAccount](t)(client.CoreV1().ServiceAccounts(ns).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "contiv-netplugin"}}, metav1.CreateOptions{}))
	ok[*corev1.ConfigMap](t)(client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: serviceaccount.BundleName}}, metav1.CreateOptions{}))
	freeLease(t, client)
	program := filepath.Join(t.TempDir(), "netmaster")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "../../cmd/netmaster").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kubeconfig := asNetmaster(t, client, config)
	addresses := free(t, 15)
	doors := strings.Join([]string{addresses[4], addresses[9], addresses[14]}, ",")
	for i := range 3 {
		node := fmt.Sprintf("node%d", i+1)
		ok[*corev1.Node](t)(client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}))
		pod := ok[*corev1.Pod](t)(client.CoreV1().Pods(ns).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "netmaster-" + node},
			Spec:       corev1.PodSpec{NodeName: node, ServiceAccountName: "contiv-netmaster", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{}))
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{serviceaccount.Audience}, BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		}}
		token := ok[*authenticationv1.TokenRequest](t)(client.CoreV1().ServiceAccounts(ns).CreateToken(ctx, "contiv-netmaster", request, metav1.CreateOptions{}))
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "token"), []byte(token.Status.Token), 0o600))
		a := addresses[5*i:]
		p := &podMaster{t: t, program: program, data: filepath.Join(dir, "etcd"), api: a[0], args: []string{
			"--secure", "--kubeconfig", kubeconfig, "--data-dir", filepath.Join(dir, "etcd"), "--member-name", node, "--external-address", a[0], "--internal-address", a[0],
			"--agent-address", a[1], "--etcd-listen", a[2], "--peer-listen", a[3], "--join-listen", a[4], "--join", doors, "--join-token-file", filepath.Join(dir, "token"),
			"--member-service-account", ns + "/contiv-netmaster", "--enroll-service-account", ns + "/contiv-netplugin",
		}}
		t.Cleanup(func() {
			p.kill(false)
			if t.Failed() && p.log != nil {
				t.Logf("%s says\n%s", node, p.log)
			}
		})
		all = append(all, p)
	}
	return all
}

// freeLease has a Lease that no netmaster holds, in place of the one that there was.
func freeLease(t *testing.T, client *kubernetes.Clientset) {
	t.Helper()
	leases := client.CoordinationV1().Leases("kube-system")
	_ = leases.Delete(t.Context(), serviceaccount.FounderLease, metav1.DeleteOptions{}) // there may be none yet
	ok[*coordinationv1.Lease](t)(leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: serviceaccount.FounderLease}}, metav1.CreateOptions{}))
}

// TestNetmastersFormOneCluster: three netmasters with empty directories form one cluster by a real API server. A
// node whose disk was emptied takes its former place. A Lease that is lost starts no second
// cluster, though no member answers: who has no data waits for the members. Once two of three
// are lost for good, the third recovers by the command of docs/how-to/kubernetes-netmasters.md.
func TestNetmastersFormOneCluster(t *testing.T) {
	c, client := control(t)
	all := podMasters(t, client, ok[*rest.Config](t)(c.Config()))
	want := []string{"node1", "node2", "node3"}
	whole := func(what string, by *podMaster) {
		t.Helper()
		until(t, what, func() bool { return slices.Equal(by.members(), want) })
	}
	record := func() string {
		m := ok[*corev1.ConfigMap](t)(client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), serviceaccount.BundleName, metav1.GetOptions{}))
		return certificateOf([]byte(m.Data[serviceaccount.BundleKey]))
	}
	for _, p := range all {
		p.start()
	}
	for _, p := range all {
		whole("three netmasters are members", p)
	}
	cluster := record()
	for _, p := range all {
		if p.authority() != cluster || cluster == "" {
			t.Errorf("a member has the authority %s, and %s is recorded", p.authority(), cluster)
		}
	}

	all[2].kill(true)
	freeLease(t, client)
	all[2].start()
	whole("a node with an emptied disk is a member again", all[2])

	for _, p := range all {
		p.kill(p == all[0])
	}
	freeLease(t, client)
	all[0].start()
	until(t, "it waits, and says so", func() bool { return strings.Contains(all[0].log.String(), "founds no other one") })
	if _, err := os.Stat(filepath.Join(all[0].data, "member")); !os.IsNotExist(err) {
		t.Errorf("it has data of a cluster: %v", err)
	}
	all[1].start()
	all[2].start()
	whole("it has joined the recorded cluster", all[0])
	for _, p := range all {
		if p.authority() != cluster || record() != cluster {
			t.Errorf("in the end a member has the authority %s, and %s is recorded; it was %s", p.authority(), record(), cluster)
		}
	}

	for _, p := range all {
		p.kill(p != all[0])
	}
	recoverAsPageSays(t, all[0])
	for _, p := range all {
		p.start()
	}
	for _, p := range all {
		whole("after a recovery three netmasters are members", p)
		if p.authority() != cluster {
			t.Errorf("after a recovery a member has the authority %s, and it was %s", p.authority(), cluster)
		}
	}
}

// recoverAsPageSays runs netmaster as the page has it run in a pod on the node.
func recoverAsPageSays(t *testing.T, p *podMaster) {
	t.Helper()
	page := ok[[]byte](t)(os.ReadFile("../../docs/how-to/kubernetes-netmasters.md"))
	_, line, _ := strings.Cut(string(page), "     netmaster --config none --recover ")
	line, _, found := strings.Cut(line, "\n")
	if !found {
		t.Fatal("the page has no command to recover")
	}
	line = strings.NewReplacer("/host/var/lib/contiv/etcd", p.data, `"$NODE"`, "node1", `"$ADDRESS:9999"`, p.api).Replace(line)
	if out, err := exec.CommandContext(t.Context(), p.program, append([]string{"--config", "none", "--recover"}, strings.Fields(line)...)...).CombinedOutput(); err != nil {
		t.Fatalf("netmaster --recover %s: %v\n%s", line, err, out)
	}
}
