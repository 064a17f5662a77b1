package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// bareAddress is where the bare program listens in the master's namespace.
const bareAddress = "127.0.0.1:9997"

// bare measures the floor of createEndpoint on this machine: a process that
// answers the same request by one transaction of the same size, and does
// nothing else.
func (b *bench) bare(ctx context.Context, l *testcluster.Lab) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	pctx, stop := context.WithCancel(ctx)
	cmd := l.Master.Command(pctx, self, "-bare", "http://127.0.0.1:2379")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		stop()
		return err
	}
	defer func() {
		stop()
		_ = cmd.Wait() // it was killed
	}()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("start the bare program: %w", err)
	}
	c, err := api.NewClient("http://"+bareAddress, api.WithHTTPClient(l.Master.HTTP()))
	if err != nil {
		return err
	}
	defer c.Close()
	b.report.table("A bare HTTP server that commits as much as createEndpoint in one transaction and does nothing else, for comparison", "clients", "a second")
	n := b.n(2000)
	for _, clients := range []int{1, 8} {
		took, err := times(ctx, clients, n, func(ctx context.Context, i int) error {
			_, err := c.CreateEndpoint(ctx, api.CreateEndpointRequest{
				TenantName: "t", NetworkName: "big", EndpointID: fmt.Sprintf("c%de%d", clients, i),
				ConfigEP: api.ConfigEP{Host: fmt.Sprintf("host%d", i%100)},
			})
			return err
		})
		if err != nil {
			return err
		}
		b.report.row(clients, perSecond(n, took))
	}
	return nil
}

// serveBare is the bare program.
func serveBare(ctx context.Context, endpoint string) (err error) {
	etcd, err := clientv3.New(clientv3.Config{Context: ctx, Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", bareAddress)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /plugin/createEndpoint", func(w http.ResponseWriter, r *http.Request) {
		var req api.CreateEndpointRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := commitAsMuch(r.Context(), etcd, req.EndpointID); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(api.CreateEndpointResponse{EndpointConfig: api.EndpointConfig{EndpointID: req.EndpointID}}) // the client may be gone
	})
	_, _ = io.WriteString(os.Stdout, "ready\n")
	srv := http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	return srv.Serve(l)
}

// commitAsMuch creates two keys, puts two others blindly and compares five, as
// the creation of an endpoint does.
func commitAsMuch(ctx context.Context, etcd *clientv3.Client, id string) error {
	endpoint, address := "/bench/endpoint/"+id, "/bench/address/"+id
	var compares []clientv3.Cmp
	for _, key := range []string{endpoint, address, "/bench/network", "/bench/pools", "/bench/claim"} {
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(key), "=", 0))
	}
	resp, err := etcd.Txn(ctx).If(compares...).Then(
		clientv3.OpPut(endpoint, strings.Repeat("x", 200)), clientv3.OpPut(address, strings.Repeat("x", 100)),
		clientv3.OpPut("/bench/commit", ""), clientv3.OpPut("/bench/generation", ""),
	).Commit()
	if err == nil && !resp.Succeeded {
		err = fmt.Errorf("%s is there already", id)
	}
	return err
}
