// Command pause is the first process of each pod in tests: it holds the pod's namespaces,
// reaps orphaned processes, and ends on a signal. tools/kube.sh builds it. Start with main.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	orphans := make(chan os.Signal, 1)
	signal.Notify(orphans, syscall.SIGCHLD)
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	for {
		select {
		case <-end:
			return
		case <-orphans:
			for pid := 1; pid > 0; { // until none is left that has ended
				pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			}
		}
	}
}
