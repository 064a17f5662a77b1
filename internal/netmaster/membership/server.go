package membership

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	etcdtransport "go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap/zapcore"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
)

// DefaultQuota is how many bytes a member's database may have before the cluster
// takes no more writes: what etcd's own documents advise at most.
const DefaultQuota = 8 << 30

// server is the etcd of a member.
type server struct {
	etcd   *embed.Etcd
	ports  *ports
	client *clientv3.Client // inside this process
	died   chan struct{}    // closed when etcd cannot go on; why is set before
	once   sync.Once
	why    error
	advice func(why error) string // what to do then
}

// OnWrite implements zapcore.CheckWriteHook: it ends the goroutine in which etcd
// cannot go on, where etcd would end the process.
func (s *server) OnWrite(ce *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(ce.Message)
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			err = fmt.Errorf("%s: %w", ce.Message, cause)
		}
	}
	s.once.Do(func() {
		s.why = err
		close(s.died)
	})
	zapcore.WriteThenGoexit.OnWrite(ce, fields)
}

// initial are the members that a member without data begins with.
type initial struct {
	existing bool   // else it founds a cluster of its own, if it has no data
	members  []Peer // whom a learner without data finds its cluster by
	force    bool   // of the data that there are, make a cluster of one member
}

// Peer is a member's place in the cluster.
type Peer struct {
	Name    string `json:"name"`
	Address string `json:"address"` // host:port of its peer port
}

// startServer starts etcd; it need not have found a leader when it returns.
func startServer(ctx context.Context, d *directory, cfg Config, p *peers, i initial) (*server, error) {
	s := &server{died: make(chan struct{}), advice: d.advice}
	c, err := embedConfig(d, cfg, p, i, s)
	if err != nil {
		return nil, err
	}
	if s.ports, err = openPorts(ctx, cfg, c); err != nil {
		return nil, fmt.Errorf("start etcd with data in %s: %w", d.path, err)
	}
	type started struct {
		etcd *embed.Etcd
		err  error
	}
	done := make(chan started, 1)
	go func() { // it ends by itself where etcd cannot go on: see OnWrite
		e, err := embed.StartEtcd(c)
		done <- started{e, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			s.ports.shut()
			return nil, fmt.Errorf("start etcd with data in %s: %w", d.path, r.err)
		}
		s.etcd = r.etcd
	case <-s.died:
		s.ports.shut()
		return nil, fmt.Errorf("start etcd with data in %s: %w", d.path, s.ended())
	}
	s.client = v3client.New(s.etcd.Server)
	if err := s.ports.serve(s.etcd.Server, s.etcd.GetLogger()); err != nil {
		s.close()
		return nil, fmt.Errorf("start etcd with data in %s: %w", d.path, err)
	}
	return s, nil
}

func embedConfig(d *directory, cfg Config, p *peers, i initial, end zapcore.CheckWriteHook) (*embed.Config, error) {
	c := embed.NewConfig()
	c.Name, c.Dir = d.Name, d.path
	client := url.URL{Scheme: transport.HTTP, Host: cfg.Client}
	if t := cfg.TLS; t != nil {
		client.Scheme = transport.HTTPS
		c.ClientTLSInfo = etcdtransport.TLSInfo{CertFile: t.Cert, KeyFile: t.Key, TrustedCAFile: t.ClientCA, ClientCertAuth: t.ClientCA != ""}
		c.GRPCAdditionalServerOptions = guard(len(cfg.Plain) > 0)
	}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	for _, p := range cfg.Plain { // the first bytes tell who speaks TLS
		c.ListenClientUrls = append(c.ListenClientUrls, url.URL{Scheme: transport.HTTP, Host: p})
	}
	c.AdvertisePeerUrls = []url.URL{{Scheme: transport.HTTPS, Host: cfg.Peer}}
	if !cfg.alone && !i.force { // no client may connect before a recovery is done
		c.ListenPeerUrls = []url.URL{{Scheme: transport.HTTPS, Host: cfg.PeerListen}}
	} else {
		c.ListenPeerUrls = nil
	}
	c.ForceNewCluster = i.force
	files, err := transport.OpenDirectory(p.own)
	if err != nil {
		return nil, err
	}
	f := files.Files()
	c.PeerTLSInfo = etcdtransport.TLSInfo{
		CertFile: f.Cert, KeyFile: f.Key, TrustedCAFile: f.ClientCA, ClientCertAuth: true,
		// Every holder of a certificate of this authority is a member. A host may have more
		// addresses than the others know.
		SkipClientSANVerify: true,
	}
	c.TlsMinVersion = "TLS1.3" // of what it asks others
	c.ClientTLSInfo.MinVersion, c.PeerTLSInfo.MinVersion = tls.VersionTLS13, tls.VersionTLS13
	c.InitialCluster = c.InitialClusterFromName(d.Name)
	if i.existing {
		c.ClusterState = embed.ClusterStateFlagExisting
	}
	if len(i.members) > 0 {
		var all []string
		for _, m := range i.members {
			all = append(all, m.Name+"="+transport.HTTPS+"://"+m.Address)
		}
		c.InitialCluster = strings.Join(all, ",")
	}
	// Two clusters that were founded at one address are two.
	c.InitialClusterToken = "contiv " + fingerprint(p.auth.Load()).String()
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(etcd.NewZap(cfg.Logger, end))
	c.EnableGRPCGateway = false
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModeRevision, "10000"
	c.QuotaBackendBytes = cfg.Quota
	c.ElectionMs = electionTime
	// Its rules are kept here, with sentences and a way to force them: only learners are
	// added, and see quorum.go.
	c.StrictReconfigCheck = false
	return c, nil
}

// ready waits until the member takes part in its cluster, and tells what it waits for.
func (s *server) ready(ctx context.Context, log *slog.Logger, waits string) error {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-s.etcd.Server.ReadyNotify():
			return nil
		case <-tick.C:
			log.Warn("the store waits", "for", waits)
		case <-ctx.Done():
			return model.Errorf(model.ErrUnavailable, "the store waits for %s: %w", waits, ctx.Err())
		case <-s.died:
			return s.ended()
		case <-s.etcd.Server.StopNotify():
			return s.ended()
		}
	}
}

// ended is why etcd has ended by itself.
func (s *server) ended() error {
	select {
	case <-s.died:
		return model.Errorf(model.ErrUnavailable, "the store has failed: %w; %s", s.why, s.advice(s.why))
	default:
		return ErrRemoved
	}
}

// broken reports whether a part of etcd has ended by itself.
func (s *server) broken() bool {
	select {
	case <-s.died:
		return true
	default:
		return false
	}
}

// ErrRemoved is why etcd stops in order, but for Close.
var ErrRemoved = model.Errorf(model.ErrConflict, "this member was removed from its cluster: to add the host again, make a token there and join with an empty directory")

// close ends etcd and waits for it.
func (s *server) close() {
	if s.etcd == nil { // it is elsewhere
		return
	}
	_ = s.client.Close() // of functions, not of a connection
	if s.broken() {      // it would wait for its own dead parts
		s.ports.shut()
		return
	}
	s.ports.stopClients()
	s.etcd.Close()
	s.ports.close()
}
