// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// node runs the containers of pods from the images of a release. Each container runs in a chroot
// and its own network namespace, with the user, arguments, environment and volumes of the pod.
type node struct {
	dir, address string // address is the cluster IP of the Service kubernetes
	images       archives
	client       kubernetes.Interface
	mu           sync.Mutex
	pods         map[types.UID]*container
	// problems contains the errors that prevent pods from starting, keyed by pod name. The key
	// "node" contains the node's own error.
	problems map[string]string
	started  int
}

// container is the running container of a pod. Each pod has only one container.
type container struct {
	pod     *corev1.Pod
	address netip.Addr
	ready   bool
	root    string
	log     string
	stop    context.CancelFunc
}

const nodeName = "machine"

// runNode runs a node until the test ends.
func runNode(t *testing.T, client kubernetes.Interface, images archives) *node {
	t.Helper()
	n := &node{
		dir:      t.TempDir(),
		images:   images,
		client:   client,
		pods:     map[types.UID]*container{},
		problems: map[string]string{},
	}
	if err := os.Chmod(n.dir, 0o755); err != nil { // #nosec G302 -- containers run as other users
		t.Fatal(err)
	}
	kubernetesService, err := client.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.address = kubernetesService.Spec.ClusterIP
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	proxy := &services{node: n, open: map[string]net.Listener{}}
	done.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
			err := errors.Join(n.sync(ctx), proxy.follow(ctx))
			n.report("node", err)
		}
	})
	t.Cleanup(func() {
		stop()
		done.Wait()
		if t.Failed() {
			t.Log(n.logs())
		}
	})
	return n
}

func (n *node) report(name string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.problems, name)
	if err != nil {
		n.problems[name] = err.Error()
	}
}

// logs returns the current problems, and the last lines of each container's log.
func (n *node) logs() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := fmt.Sprintf("waiting: %v\n", n.problems)
	for _, c := range n.pods {
		text, _ := os.ReadFile(c.log)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		out += c.pod.Name + ":\n" + strings.Join(lines[max(0, len(lines)-15):], "\n") + "\n"
	}
	return out
}

// sync starts the containers of new pods, and stops the containers of deleted pods.
func (n *node) sync(ctx context.Context) error {
	all, err := n.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	here := map[types.UID]bool{}
	for i := range all.Items {
		pod := &all.Items[i]
		if pod.DeletionTimestamp != nil {
			errs = append(errs, client404(n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
				*metav1.NewDeleteOptions(0))))
			continue
		}
		here[pod.UID] = true
		c := n.pods[pod.UID]
		if c == nil {
			c, err = n.start(ctx, pod)
			n.report(pod.Name, err)
			if err != nil {
				continue
			}
		} else if err := n.mount(ctx, pod, c.root, true); err != nil {
			errs = append(errs, err)
		}
		errs = append(errs, n.probe(ctx, c))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid, c := range n.pods {
		if !here[uid] {
			c.stop()
			delete(n.pods, uid)
		}
	}
	return errors.Join(errs...)
}

func client404(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// start starts the container of a pod. If start returns an error, the pod stays pending and sync
// tries again.
func (n *node) start(ctx context.Context, pod *corev1.Pod) (*container, error) {
	if len(pod.Spec.Containers) != 1 || len(pod.Spec.InitContainers) != 0 {
		return nil, errors.New("the node runs pods of one container")
	}
	spec := &pod.Spec.Containers[0]
	root := filepath.Join(n.dir, string(pod.UID))
	if err := errors.Join(os.RemoveAll(root), os.Mkdir(root, 0o755)); err != nil { // #nosec G301 -- of a container
		return nil, err
	}
	image, err := n.images.pull(spec.Image, root)
	if err != nil {
		return nil, err
	}
	if err := n.mount(ctx, pod, root, false); err != nil {
		return nil, err
	}
	n.started++
	number := n.started
	c := &container{
		pod:     pod,
		address: netip.MustParseAddr(fmt.Sprintf("172.30.1.%d", number)),
		root:    root,
		log:     root + ".log",
	}
	running, stop := context.WithCancel(ctx)
	c.stop = stop
	if err := n.run(running, c, image, number); err != nil {
		stop()
		return nil, err
	}
	n.mu.Lock()
	n.pods[pod.UID] = c
	n.mu.Unlock()
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName},
	}
	return c, n.client.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
}

// run starts the image's entry point with the pod's command, arguments, environment and user.
func (n *node) run(ctx context.Context, c *container, image *imageConfig, number int) error {
	spec, security := &c.pod.Spec.Containers[0], c.pod.Spec.SecurityContext
	command := slices.Concat(image.Config.Entrypoint, image.Config.Cmd)
	if len(spec.Args) > 0 {
		command = slices.Concat(image.Config.Entrypoint, spec.Args)
	}
	if len(spec.Command) > 0 {
		command = slices.Concat(spec.Command, spec.Args)
	}
	if len(command) == 0 || security == nil || security.RunAsUser == nil || *security.RunAsUser == 0 ||
		strings.Split(image.Config.User, ":")[0] != fmt.Sprint(*security.RunAsUser) {
		return fmt.Errorf("the image runs %q as %q, and the pod specifies %+v", command, image.Config.User, security)
	}
	log, err := os.OpenFile(c.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) // #nosec G204 -- of the release
	cmd.Path, cmd.Err, cmd.Dir = command[0], nil, "/"
	cmd.Env = slices.Concat(image.Config.Env, []string{
		"HOSTNAME=" + c.pod.Name, "KUBERNETES_SERVICE_HOST=" + n.address, "KUBERNETES_SERVICE_PORT=443",
	})
	for _, v := range spec.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	cmd.Stdout, cmd.Stderr = log, log
	user, group := uint32(*security.RunAsUser), uint32(*security.RunAsGroup) // #nosec G115 -- valid IDs
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot:     c.root,
		Credential: &syscall.Credential{Uid: user, Gid: group, Groups: []uint32{uint32(*security.FSGroup)}}, // #nosec G115
		Pdeathsig:  syscall.SIGKILL,
	}
	ended, err := startIn(cmd, number, c.address)
	if err != nil {
		return err
	}
	go func() { // restart the container as restartPolicy Always does, in a new network namespace
		err := <-ended
		if ctx.Err() == nil {
			n.report(c.pod.Name, fmt.Errorf("%v ended: %w", command, err))
			time.Sleep(time.Second)
			_ = n.run(ctx, c, image, number+100)
		}
	}()
	return nil
}

// probe sends the readiness probe of a container. If the result has changed, it updates the status
// of the pod.
func (n *node) probe(ctx context.Context, c *container) error {
	probe := c.pod.Spec.Containers[0].ReadinessProbe.HTTPGet
	at := net.JoinHostPort(c.address.String(), fmt.Sprint(portOf(c.pod, probe.Port.String())))
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(limited, http.MethodGet, "http://"+at+probe.Path, http.NoBody)
	if err != nil {
		return err
	}
	ready := false
	if resp, err := http.DefaultClient.Do(req); err == nil {
		ready = resp.StatusCode == http.StatusOK
		_ = resp.Body.Close()
	}
	if ready == c.ready {
		return nil
	}
	pod, err := n.client.CoreV1().Pods(c.pod.Namespace).Get(ctx, c.pod.Name, metav1.GetOptions{})
	if err != nil {
		return client404(err)
	}
	status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[ready]
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, c.address.String()
	pod.Status.PodIPs = []corev1.PodIP{{IP: c.address.String()}}
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()},
		{Type: corev1.ContainersReady, Status: status, LastTransitionTime: metav1.Now()},
	}
	if _, err := n.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return client404(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c.ready = ready
	return nil
}

// portOf returns the number of the pod's port with the given name or number.
func portOf(pod *corev1.Pod, port string) string {
	for _, p := range pod.Spec.Containers[0].Ports {
		if p.Name == port {
			return fmt.Sprint(p.ContainerPort)
		}
	}
	return port
}

// ready returns the addresses of the ready pods behind a port of a Service.
func (n *node) ready(service *corev1.Service, port corev1.ServicePort) (targets []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	selector := labels.SelectorFromSet(service.Spec.Selector)
	for _, c := range n.pods {
		if c.ready && c.pod.Namespace == service.Namespace && selector.Matches(labels.Set(c.pod.Labels)) {
			targets = append(targets, net.JoinHostPort(c.address.String(), portOf(c.pod, port.TargetPort.String())))
		}
	}
	return targets
}

// mount writes the files of a pod's volumes to their mount paths in root. If the container is
// running, it updates only the volumes of Secrets and ConfigMaps, as the kubelet does.
func (n *node) mount(ctx context.Context, pod *corev1.Pod, root string, running bool) error {
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 || m.SubPath != "" || m.SubPathExpr != "" {
			return fmt.Errorf("volume %s: the node cannot mount it", m.Name)
		}
		if running && pod.Spec.Volumes[i].Secret == nil && pod.Spec.Volumes[i].ConfigMap == nil {
			continue
		}
		group := int(*pod.Spec.SecurityContext.FSGroup)
		path := filepath.Join(root, m.MountPath)
		if err := os.MkdirAll(path, 0o755); err != nil { // #nosec G301 -- of a container
			return err
		}
		if pod.Spec.Volumes[i].EmptyDir != nil {
			if err := errors.Join(os.Chown(path, 0, group), os.Chmod(path, 0o770)); err != nil { // #nosec G302
				return err
			}
			continue
		}
		content, err := n.volume(ctx, pod, &pod.Spec.Volumes[i])
		if err != nil {
			return fmt.Errorf("volume %s: %w", m.Name, err)
		}
		for name, data := range content {
			if err := writeVolumeFile(filepath.Join(path, name), data, group); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeVolumeFile atomically replaces a file if its content differs.
func writeVolumeFile(file string, data []byte, group int) error {
	if was, err := os.ReadFile(file); err == nil && bytes.Equal(was, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { // #nosec G301 -- of a container
		return err
	}
	next := file + ".next"
	return errors.Join(os.WriteFile(next, data, 0o440), // #nosec G306 -- as the kubelet
		os.Chown(next, 0, group), os.Rename(next, file))
}

// volume returns the files of a volume.
func (n *node) volume(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (map[string][]byte, error) {
	switch {
	case v.Secret != nil:
		secret, err := n.client.CoreV1().Secrets(pod.Namespace).Get(ctx, v.Secret.SecretName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && v.Secret.Optional != nil && *v.Secret.Optional {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return items(secret.Data, v.Secret.Items)
	case v.ConfigMap != nil:
		return n.configMap(ctx, pod, v.ConfigMap.Name, v.ConfigMap.Items)
	case v.Projected != nil:
		all := map[string][]byte{}
		for i := range v.Projected.Sources {
			part, err := n.projected(ctx, pod, &v.Projected.Sources[i])
			if err != nil {
				return nil, err
			}
			maps.Copy(all, part)
		}
		return all, nil
	}
	return nil, errors.New("unsupported volume type")
}

func (n *node) configMap(
	ctx context.Context, pod *corev1.Pod, name string, wanted []corev1.KeyToPath,
) (map[string][]byte, error) {
	configMap, err := n.client.CoreV1().ConfigMaps(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{}
	for key, text := range configMap.Data {
		data[key] = []byte(text)
	}
	return items(data, wanted)
}

// projected returns the files of one source of a projected volume.
func (n *node) projected(
	ctx context.Context, pod *corev1.Pod, source *corev1.VolumeProjection,
) (map[string][]byte, error) {
	switch {
	case source.ServiceAccountToken != nil:
		token, err := n.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: source.ServiceAccountToken.ExpirationSeconds,
				BoundObjectRef: &authenticationv1.BoundObjectReference{
					Kind:       "Pod",
					APIVersion: "v1",
					Name:       pod.Name,
					UID:        pod.UID,
				},
			}}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		return map[string][]byte{source.ServiceAccountToken.Path: []byte(token.Status.Token)}, nil
	case source.ConfigMap != nil:
		return n.configMap(ctx, pod, source.ConfigMap.Name, source.ConfigMap.Items)
	case source.DownwardAPI != nil && len(source.DownwardAPI.Items) == 1:
		return map[string][]byte{source.DownwardAPI.Items[0].Path: []byte(pod.Namespace)}, nil
	}
	return nil, errors.New("unsupported source of a projected volume")
}

// items returns the values of the wanted keys, keyed by path. If wanted is empty, it returns
// data.
func items(data map[string][]byte, wanted []corev1.KeyToPath) (map[string][]byte, error) {
	if len(wanted) == 0 {
		return data, nil
	}
	out := map[string][]byte{}
	for _, item := range wanted {
		value, ok := data[item.Key]
		if !ok {
			return nil, fmt.Errorf("there is no key %s", item.Key)
		}
		out[item.Path] = value
	}
	return out, nil
}

// awaitProblem waits until a pod whose name has the given prefix cannot start for the given reason.
func (n *node) awaitProblem(t *testing.T, prefix, reason string) {
	t.Helper()
	waittest.Until(t, func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		for name, problem := range n.problems {
			if strings.HasPrefix(name, prefix) && strings.Contains(problem, reason) {
				return nil
			}
		}
		return fmt.Errorf("no pod %s waits because of %q: %v", prefix, reason, n.problems)
	})
}
