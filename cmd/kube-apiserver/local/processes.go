// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubetenant/kubetenant/test/localserver"
)

// run starts a process. It writes the output of the process to logFile, and the process ID to
// another file in the same directory.
func (s *webhookDeployment) run(name, logFile string, env []string, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%w: run make build", err)
	}
	log := filepath.Join(s.dir, logFile)
	// #nosec G304 -- in the operator's directory
	file, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	child := exec.Command(path, args...) // #nosec G204 -- in the directory of our own binary
	child.Env = append(os.Environ(), env...)
	child.Stdout, child.Stderr, child.SysProcAttr = file, file, localserver.EndsWithParent()
	if err := child.Start(); err != nil {
		return err
	}
	s.children = append(s.children, child)
	go func() {
		err := child.Wait()
		s.exits <- exit{
			child, err != nil, fmt.Errorf("%s ended: %w: %s (%s)", name, err, lastLine(file.Name()), file.Name()),
		}
	}()
	pid := filepath.Join(s.dir, strings.TrimSuffix(logFile, ".log")+".pid")
	return os.WriteFile(pid, []byte(strconv.Itoa(child.Process.Pid)+"\n"), 0o600)
}

// lastLine returns the last line of the log at path, or the error from reading it.
func lastLine(path string) string {
	data, err := os.ReadFile(path) // #nosec G304 -- in the operator's directory
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}

// stop stops all processes. kube-apiserver gets the given time to shut down. All other
// processes are killed immediately.
func (s *webhookDeployment) stop(within time.Duration) error {
	for _, child := range slices.Backward(s.children) {
		signal := syscall.SIGKILL
		if isServer(child) {
			signal = syscall.SIGTERM
		}
		_ = child.Process.Signal(signal) // the process may have ended already
	}
	timeout := time.After(within)
	var err error
	for range len(s.children) {
		select {
		case <-s.exits:
		case <-timeout:
			if within > 0 {
				err = errors.New("killed a process that did not stop in time")
			}
			for _, child := range s.children {
				_ = child.Process.Kill() // the process may have ended already
			}
			<-s.exits
		}
	}
	return err
}

// await calls check until it returns nil. It returns an error after startTimeout, or if a process
// ends and is not restarted.
func (s *webhookDeployment) await(ctx context.Context, what string, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startTimeout, true,
		func(ctx context.Context) (bool, error) {
			select {
			case e := <-s.exits:
				if s.forget(e); s.restartController(e) {
					return false, nil
				}
				return false, e.err
			default:
			}
			last = check(ctx)
			return last == nil, nil
		})
	if err != nil && last != nil && wait.Interrupted(err) {
		return fmt.Errorf("%s is not ready: %w", what, last)
	}
	return err
}

// apply applies the objects of a YAML file.
func (s *webhookDeployment) apply(ctx context.Context, data []byte) error {
	client, err := kubernetes.NewForConfig(s.admin)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(s.admin)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(u.Object) == 0 {
			continue
		}
		mapping, err := mapper.RESTMapping(u.GroupVersionKind().GroupKind(), u.GroupVersionKind().Version)
		if err != nil {
			return err
		}
		var resource dynamic.ResourceInterface = objects.Resource(mapping.Resource)
		if u.GetNamespace() != "" {
			resource = objects.Resource(mapping.Resource).Namespace(u.GetNamespace())
		}
		options := metav1.ApplyOptions{FieldManager: "kubetenant-local", Force: true}
		if _, err := resource.Apply(ctx, u.GetName(), u, options); err != nil {
			return fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
}

func (s *webhookDeployment) kubeconfig(name string) string {
	return filepath.Join(s.dir, name+".kubeconfig")
}

// writeToken writes a kubeconfig with a new token for a service account.
func (s *webhookDeployment) writeToken(ctx context.Context, client kubernetes.Interface, account string) error {
	seconds := int64(tokenLifetime / time.Second)
	request, err := client.CoreV1().ServiceAccounts(webhookNamespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}},
		metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a token of %s: %w", account, err)
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["local"] = &clientcmdapi.Cluster{Server: s.server, CertificateAuthorityData: certPEM(s.ca.cert.Raw)}
	c.AuthInfos[account] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	c.Contexts[account] = &clientcmdapi.Context{Cluster: "local", AuthInfo: account}
	c.CurrentContext = account
	return clientcmd.WriteToFile(*c, s.kubeconfig(account))
}
