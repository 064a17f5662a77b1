package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// blue is another tenant, with a network of its own.
var blue = []string{
	"tenant create blue",
	"network create -t blue -e vxlan -s 10.2.0.0/16 own",
}

// guest is a pod of it.
const guest = `{apiVersion: v1, kind: Pod, metadata: {name: guest, namespace: blue}, spec: {nodeSelector: {kubernetes.io/hostname: h1}, ` + serves + "\n"

// showGuest has a pod of another tenant ask what all tenants share, and what it does not.
func (d *demo) showGuest(ctx context.Context) error {
	fmt.Println("\nA pod of another tenant asks the cluster's DNS and the API server, which are every tenant's, and a pod by its own address, which is not:")
	if err := d.netctl(ctx, blue...); err != nil {
		return err
	}
	if err := d.makeNamespace(ctx, "blue"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "label namespace blue io.contiv.tenant=blue io.contiv.network=own"); err != nil {
		return err
	}
	if err := d.apply(ctx, guest); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "wait pod -n blue guest --for=condition=Ready --timeout=120s"); err != nil {
		return err
	}
	inside := []string{"exec", "-n", "blue", "guest", "--"}
	ask := []string{"dig", "+search", "+short", "+time=1", "+tries=1", "db.shop.svc"}
	answer := ""
	err := until(ctx, "the cluster's DNS to answer", func(ctx context.Context) error {
		out, err := d.n.Kubectl(ctx, append(inside, ask...)...)
		if answer = strings.TrimSpace(out); err == nil && answer != d.address["service db"] {
			err = errors.New("the service's address is another one")
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, answer)
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("  $ kubectl exec -n blue guest -- %s\n  %s\n", strings.Join(ask, " "), answer)
	pod, err := d.n.Kubectl(ctx, "get", "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns", "-o", "jsonpath={.items[0].status.podIP}")
	if err != nil {
		return fmt.Errorf("%w: %s", err, pod)
	}
	// Not port 53: a host answers there in the place of whomever a tenant's pod asks.
	for _, x := range []struct {
		what, address string
		want          bool
	}{{"the API server's service", "10.96.0.1:443", true}, {"a pod of the cluster's DNS", pod + ":8080", false}} {
		if err := until(ctx, "guest to "+x.what, func(ctx context.Context) error {
			if _, err := d.n.Kubectl(ctx, append(inside, "/agnhost", "connect", x.address, "--timeout=1s")...); (err == nil) != x.want {
				return fmt.Errorf("seen is %s, and the intent says %s", words[err == nil], words[x.want])
			}
			return nil
		}); err != nil {
			return err
		}
		fmt.Printf("  %-7s to %-27s %-15s %s\n", "guest", x.what, x.address, words[x.want])
	}
	return nil
}
