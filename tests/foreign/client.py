"""A client that shares no code with the project: grpcio and stubs made from the .proto file.

    client.py SOCKET

Prints one JSON object with what the daemon said. The process that starts it judges that; here only the protocol is spoken.
"""

import json
import sys

import grpc
import kernel_service_pb2 as pb
import kernel_service_pb2_grpc as service
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2 as old_reflection  # noqa: F401, its messages are the v1 ones
from grpc_status import rpc_status

DECODE = [0, 128, 32, 8, 16, 4, 0, 0, 8]


def decode_params(head_dim=128):
    ints = [pb.ParamValue(i=value) for value in DECODE]
    ints[1] = pb.ParamValue(i=head_dim)
    return ints + [pb.ParamValue(f=128**-0.5)]


def refusal(call):
    """The ErrorInfo of a call that must fail."""
    try:
        answer = call()
    except grpc.RpcError as error:
        status = rpc_status.from_call(error)
        found = {"code": error.code().name, "message": error.details(), "details": []}
        for detail in status.details if status else []:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info):
                found["details"].append({"reason": info.reason, "domain": info.domain, "metadata": dict(info.metadata)})
        return found
    return {"accepted": str(answer)}


def services(channel):
    """The services that reflection (v1) lists."""
    method = channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=old_reflection.ServerReflectionRequest.SerializeToString,
        response_deserializer=old_reflection.ServerReflectionResponse.FromString,
    )
    answers = method(iter([old_reflection.ServerReflectionRequest(list_services="")]))
    return sorted(found.name for found in next(answers).list_services_response.service)


def main(socket):
    said = {}
    # Without this grpcio sends the socket's path, percent-encoded, as :authority, and the daemon's HTTP/2 refuses that.
    with grpc.insecure_channel(f"unix:{socket}", options=[("grpc.default_authority", "localhost")]) as channel:
        stub = service.KernelServiceStub(channel)
        about = stub.Describe(pb.DescribeRequest())
        said["slot"], said["abi_revision"] = about.slot, about.abi_revision
        said["ready"] = [op.name for op in about.ops if op.ready]

        health = health_pb2_grpc.HealthStub(channel)
        answer = health.Check(health_pb2.HealthCheckRequest(service="hippihx.v1.KernelService"))
        said["health"] = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        said["services"] = services(channel)

        events = stub.Attach(pb.AttachRequest(client_name="a client of another language"))
        attached = next(events).attached
        said["secret_bytes"] = len(attached.secret)
        session = (("hippihx-session", str(attached.session)), ("hippihx-secret-bin", attached.secret))
        question = pb.PlanRequest(op_name="attention.fa_fdot2", caps=pb.Caps(arch="gfx1030"), params=decode_params())
        plan = stub.Plan(question, metadata=session)
        said["plan"] = {
            "ready": plan.ready,
            "wave": plan.wave,
            "scratch": [[block.name, block.nbytes, block.offset] for block in plan.scratch],
            "scratch_nbytes": plan.scratch_nbytes,
        }
        said["same_plan"] = stub.Plan(question, metadata=session).plan == plan.plan
        memory = stub.Allocate(pb.AllocateRequest(size_bytes=4096, label="foreign"), metadata=session)
        said["allocated"] = memory.size_bytes
        said["sessions"] = [row.client_name for row in stub.Stats(pb.StatsRequest()).sessions]

        wrong = pb.PlanRequest(op_id=0, caps=pb.Caps(arch="gfx1030"), params=decode_params(head_dim=96))
        said["param"] = refusal(lambda: stub.Plan(wrong, metadata=session))
        said["stranger"] = refusal(lambda: stub.Plan(question))
        events.cancel()
    print(json.dumps(said))


main(sys.argv[1])
