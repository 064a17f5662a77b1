package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// Program is the environment variable that names the Kubernetes that tools/kube.sh built.
const Program = "CONTIV_KUBE"

// ErrNotBuilt says that there is no Kubernetes to run: a test skips with it.
var ErrNotBuilt = errors.New("no Kubernetes is built: set " + Program + "=$(tools/kube.sh), or run `make test-kube`")

// startTimeout bounds the start of the control plane: 4 s on an idle machine, over two
// minutes at a load of 33.
const startTimeout = 15 * time.Minute

// Control is an etcd and an API server, and what Schedule adds to them.
type Control struct {
	// Kubeconfig is the path of a file by which a member of system:masters reaches
	// the API server.
	Kubeconfig string

	dir       string
	at        Place
	etcd      *membership.Member
	etcdLog   *os.File
	forwarder *forwarder // by which the API server reaches the etcd, which is in this process
	stores    int        // how many etcds there were
	port      string
	ca        *authority
	server    *process
	others    []*process // what Schedule started
	close     func() error
}

// Start is StartAt on loopback.
func Start(ctx context.Context, dir string) (*Control, error) {
	return StartAt(ctx, dir, Place{Address: netip.AddrFrom4([4]byte{127, 0, 0, 1})})
}

// StartAt runs an etcd and an API server at a place, with their files below dir, which
// must exist, and returns when the API server says that it is ready. It returns
// ErrNotBuilt when Program names nothing, and an error with the end of the log of what
// failed else.
func StartAt(ctx context.Context, dir string, at Place) (_ *Control, err error) {
	if os.Getenv(Program) == "" {
		return nil, ErrNotBuilt
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c := &Control{dir: dir, at: at}
	c.close = sync.OnceValue(c.end)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if err := c.startEtcd(ctx); err != nil {
		return nil, err
	}
	if c.port, err = at.freePort(ctx); err != nil {
		return nil, err
	}
	if c.ca, err = credentials(dir, at.Address); err != nil {
		return nil, err
	}
	if c.Kubeconfig, err = c.user("kubeconfig", "admin", "system:masters"); err != nil {
		return nil, err
	}
	return c, c.startServer(ctx)
}

// Beside is StartAt beside a lab's netmaster, with a client that nothing holds back.
func Beside(ctx context.Context, l *testcluster.Lab, dir string) (*Control, *kubernetes.Clientset, error) {
	return beside(ctx, l, dir, false, "")
}

func beside(ctx context.Context, l *testcluster.Lab, dir string, dual bool, gates string) (*Control, *kubernetes.Clientset, error) {
	c, err := StartAt(ctx, dir, Place{Space: l.Master, Address: l.Masters.MasterAddress(), Dual: dual, Gates: gates})
	if err != nil {
		return nil, nil, err
	}
	config, err := c.Config()
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, client, nil
}

// startServer starts an API server on the etcd, at the address that all have, and
// returns when it is ready.
func (c *Control) startServer(ctx context.Context) (err error) {
	file := func(name string) string { return filepath.Join(c.dir, name) }
	store := c.etcd.Endpoint()
	if c.at.Space != nil {
		if err := c.forwarder.close(); err != nil {
			return err
		}
		if c.forwarder, store, err = c.at.open(ctx, store); err != nil {
			return err
		}
	}
	argv := c.at.command(os.Getenv(Program), "kube-apiserver", "--etcd-servers="+store,
		"--bind-address="+c.at.Address.String(), "--secure-port="+c.port, "--advertise-address="+c.at.Address.String(),
		"--cert-dir="+c.dir, "--tls-cert-file="+file("server.crt"), "--tls-private-key-file="+file("server.key"),
		"--client-ca-file="+file("ca.crt"), "--service-cluster-ip-range="+c.at.services(), "--allow-privileged",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+file("sa.key"), "--service-account-signing-key-file="+file("sa.key"),
	)
	if c.at.Gates != "" {
		argv = append(argv, "--feature-gates="+c.at.Gates)
	}
	if c.at.Space == nil {
		argv = append(argv, "--authorization-mode=RBAC",
			"--endpoint-reconciler-type=none",            // an address of loopback is no endpoint of the service kubernetes
			"--disable-admission-plugins=ServiceAccount", // it waits for accounts that a controller makes
		)
	} else {
		argv = append(argv, "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--kubelet-preferred-address-types=InternalIP", // nodes' names stand in no DNS
			"--kubelet-certificate-authority="+file("ca.crt"), "--kubelet-client-certificate="+file("kubelet-client.crt"), "--kubelet-client-key="+file("kubelet-client.key"),
			"--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
		)
	}
	if c.server, err = start(c.dir, "kube-apiserver", argv...); err != nil {
		return err
	}
	return c.ready(ctx, c.server, c.port, "/readyz")
}

// startEtcd runs the etcd that netmaster embeds, inside this process. The API server's
// watch cache asks etcd for the progress of a watch, which Debian's 3.4 cannot report.
// Without it, a watch from now of unchanged objects ends in an error.
func (c *Control) startEtcd(ctx context.Context) error {
	if err := c.closeEtcd(); err != nil {
		return err
	}
	c.etcd, c.etcdLog = nil, nil
	c.stores++
	log, err := os.OpenFile(filepath.Join(c.dir, "etcd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	c.etcdLog = log
	c.etcd, err = membership.Start(ctx, membership.Config{
		Dir: filepath.Join(c.dir, fmt.Sprint("etcd", c.stores)), Client: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	return err
}

// Etcd returns the URL of the etcd, which holds Kubernetes' keys below /registry.
func (c *Control) Etcd() string { return c.etcd.Endpoint() }

// Close ends what Schedule started, then the API server, then the etcd, and returns when
// all have ended. It may be called again.
func (c *Control) Close() error { return c.close() }

func (c *Control) end() error {
	for _, p := range c.others {
		p.stop()
	}
	if c.server != nil {
		c.server.stop()
	}
	return c.closeEtcd()
}

func (c *Control) closeEtcd() error {
	err := c.forwarder.close()
	c.forwarder = nil
	if c.etcd != nil {
		err = errors.Join(err, c.etcd.Close())
	}
	if c.etcdLog != nil {
		err = errors.Join(err, c.etcdLog.Close())
	}
	return err
}

// ready returns when the process p, which serves at a port of the place, answers path
// with success, or an error at once when it has ended.
func (c *Control) ready(ctx context.Context, p *process, port, path string) error {
	config, err := c.Config()
	if err != nil {
		return err
	}
	config.Host = c.at.url(port)
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	pause := waiting.NewRetry(waiting.BackoffConfig{Base: 10 * time.Millisecond, Max: 250 * time.Millisecond})
	for {
		_, last := client.RESTClient().Get().AbsPath(path).DoRaw(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.failed(fmt.Errorf("%s does not start", p.name))
		default:
		}
		if err := pause.Pause(ctx); err != nil {
			return p.failed(fmt.Errorf("%s is not ready: %w (last: %w)", p.name, err, last))
		}
	}
}

// Config is Kubeconfig for client-go, from wherever the API server is.
func (c *Control) Config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err == nil && c.at.Space != nil {
		config.Dial = c.at.Space.Dial
	}
	return config, err
}

// credentials writes the servers' keys and certificates into dir and returns who signed
// them.
func credentials(dir string, at netip.Addr) (*authority, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	cert, key, err := ca.serving("kubernetes", at.AsSlice(), firstService.AsSlice())
	if err != nil {
		return nil, err
	}
	kubeletCert, kubeletKey, err := ca.client("kubelet-client", "system:masters")
	if err != nil {
		return nil, err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	accountsKey, err := keyPEM(accounts)
	if err != nil {
		return nil, err
	}
	for name, data := range map[string][]byte{
		"ca.crt": ca.pem, "server.crt": cert, "server.key": key, "sa.key": accountsKey, "kubelet-client.crt": kubeletCert, "kubelet-client.key": kubeletKey,
	} {
		if err := write(filepath.Join(dir, name), data); err != nil {
			return nil, err
		}
	}
	return ca, nil
}

// user writes the kubeconfig file by which a user of these groups reaches the API
// server, and returns its path.
func (c *Control) user(file, name string, groups ...string) (string, error) {
	cert, key, err := c.ca.client(name, groups...)
	if err != nil {
		return "", err
	}
	config := api.NewConfig()
	config.Clusters["test"] = &api.Cluster{Server: c.at.url(c.port), CertificateAuthorityData: c.ca.pem}
	config.AuthInfos[name] = &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: name}
	config.CurrentContext = "test"
	path := filepath.Join(c.dir, file)
	return path, clientcmd.WriteToFile(*config, path)
}
