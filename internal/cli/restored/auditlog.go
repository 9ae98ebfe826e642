// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package restored

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// maxEvent is the maximum size of an event in bytes. kube-apiserver truncates events at 10 MiB
	// by default.
	maxEvent = 16 << 20
	// maxObjects is the maximum number of objects in the logs. It limits the memory.
	maxObjects = 1_000_000
	// maxAccounts is the maximum number of service accounts that are used to identify a cluster.
	maxAccounts = 1000
)

// systemAccount is the prefix of the user names of the service accounts in kube-system.
const systemAccount = "system:serviceaccount:kube-system:"

// event contains the fields of an audit event (audit.k8s.io/v1) that are used.
type event struct {
	Kind       string    `json:"kind"`
	Stage      string    `json:"stage"`
	Received   time.Time `json:"requestReceivedTimestamp"`
	RequestURI string    `json:"requestURI"`
	Verb       string    `json:"verb"`
	User       struct {
		Username string `json:"username"`
		UID      string `json:"uid"`
	} `json:"user"`
	ObjectRef *struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// write is the last write of an object.
type write struct {
	at      time.Time
	by      string
	deleted bool
}

// auditLog contains the data in audit logs about the compared resources.
type auditLog struct {
	last map[key]write
	// accounts contains the UIDs of service accounts in kube-system. The UIDs differ between
	// clusters.
	accounts map[string]bool
	events   int
	// invalid is the number of lines that are not events. firstInvalid is the position of the
	// first of these lines.
	invalid      int
	firstInvalid string
}

func newAuditLog() *auditLog {
	return &auditLog{last: map[key]write{}, accounts: map[string]bool{}}
}

var (
	errManyObjects = fmt.Errorf("the audit logs name more than %d objects: name only the files since the backup",
		maxObjects)
	errNotRegular = errors.New("is not a regular file")
)

// read adds the events in a file.
func (l *auditLog) read(path string) (err error) {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() { // opening a pipe would block
		return fmt.Errorf("%s: %w", path, errNotRegular)
	}
	f, err := os.Open(path) // #nosec G304 -- the caller chooses the path
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	in := io.Reader(f)
	if strings.HasSuffix(path, ".gz") {
		unzipped, err := gzip.NewReader(f)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		in = unzipped
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxEvent)
	number := 0
	for lines.Scan() {
		number++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if !l.add(lines.Bytes()) {
			if l.invalid++; l.invalid == 1 {
				l.firstInvalid = fmt.Sprintf("%s:%d", path, number)
			}
		}
		if len(l.last) > maxObjects {
			return errManyObjects
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", path, number+1, err)
	}
	return nil
}

// add adds the event in a line. It returns false if the line is not an event.
func (l *auditLog) add(line []byte) bool {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Kind != "Event" || e.Stage == "" || e.Received.IsZero() {
		return false
	}
	if e.Stage != "ResponseComplete" {
		return true
	}
	l.events++
	if strings.HasPrefix(e.User.Username, systemAccount) && e.User.UID != "" && len(l.accounts) < maxAccounts {
		l.accounts[e.User.UID] = true
	}
	if !e.writes() {
		return true
	}
	k := key{
		resource:  schema.GroupResource{Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource},
		namespace: e.ObjectRef.Namespace,
		name:      e.ObjectRef.Name,
	}
	if k.resource == namespaces().GroupResource() {
		k.namespace = "" // in an event about a Namespace, this field also contains its name
	}
	if last, found := l.last[k]; !found || e.Received.After(last.at) {
		l.last[k] = write{e.Received, e.User.Username, e.Verb == "delete"}
	}
	return true
}

// writes reports whether an event is a successful write of a compared object.
func (e *event) writes() bool {
	o := e.ObjectRef
	if o == nil || o.Name == "" || o.Subresource != "" || e.ResponseStatus.Code < http.StatusOK ||
		e.ResponseStatus.Code >= http.StatusMultipleChoices {
		return false
	}
	switch e.Verb {
	case "create", "update", "patch", "delete":
	default:
		return false
	}
	if compared(schema.GroupResource{Group: o.APIGroup, Resource: o.Resource}) == nil {
		return false
	}
	uri, err := url.Parse(e.RequestURI)
	return err == nil && !uri.Query().Has("dryRun")
}
